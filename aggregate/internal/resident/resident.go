// Package resident follows the memory of a process on the host, and judges whether it grows.
package resident

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// parts is the number of parts of equal length that the time since the first sample is divided into. When it
// needs more, it joins pairs of parts.
const parts = 32

// A Use is the memory of a process on the host, from samples of it. It stays the same between two samples.
type Use struct {
	now, most, firstNs uint64
	// least is the least memory in each part of the time, up to the latest sample; a part is 1<<shift ns.
	least [parts]uint64
	last  int
	shift int
}

// Sample takes a sample.
func (u *Use) Sample(timeNs, now, most uint64) {
	if u.firstNs == 0 {
		*u = Use{firstNs: timeNs, now: now}
		u.least[0] = now
	}
	u.reach(timeNs)
	u.least[u.last] = min(u.least[u.last], now)
	u.now, u.most = now, max(u.most, most, now)
}

// reach adds parts up to a time.
func (u *Use) reach(timeNs uint64) {
	passed := timeNs - min(timeNs, u.firstNs)
	for passed>>u.shift >= parts {
		for i := range parts / 2 {
			u.least[i] = min(u.least[2*i], u.least[2*i+1])
		}
		u.last, u.shift = u.last/2, u.shift+1
	}
	for u.last < int(passed>>u.shift) {
		u.last++
		u.least[u.last] = u.now
	}
}

// The rule for growth: after the first of intervals of equal length, in which a program starts, memory rose by
// leastGrowth at least, and in leastRises of the intervals. In less time it is not judged.
const (
	intervals   = 8
	leastRises  = 6
	leastGrowth = 64 << 20
	leastTimeNs = 30e9
)

// Memory returns the memory as of a time; nil if there was no sample.
func (u *Use) Memory(nowNs uint64) *memory.HostMemory {
	if u.firstNs == 0 {
		return nil
	}
	m := &memory.HostMemory{ResidentBytes: u.now, PeakBytes: u.most}
	till := *u
	if till.reach(nowNs); nowNs-min(nowNs, u.firstNs) < leastTimeNs {
		return m
	}
	var least [intervals]uint64
	for i := range least {
		from, to := i*(till.last+1)/intervals, (i+1)*(till.last+1)/intervals
		least[i] = till.least[from]
		for _, bytes := range till.least[from:to] {
			least[i] = min(least[i], bytes)
		}
	}
	rises := 0
	for i := range intervals - 1 {
		if least[i+1] > least[i] {
			rises++
		}
	}
	if first, end := least[1], least[intervals-1]; rises >= leastRises && end >= first+leastGrowth {
		m.GrowthBytes = end - first
	}
	return m
}

// Code writes or reads the memory.
func (u *Use) Code(c *codec.Codec) {
	c.Uint(&u.firstNs)
	if u.firstNs == 0 {
		return
	}
	c.Uints(&u.now, &u.most)
	c.Below(&u.shift, 64)
	c.Below(&u.last, parts)
	for i := range u.last + 1 {
		c.Uint(&u.least[i])
	}
}
