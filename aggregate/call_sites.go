package aggregate

import (
	"encoding/binary"
	"slices"

	"ttmem/tracer/event"
)

// A Site is a call site: one call stack of a process that allocates in one region of the
// same chips.
type Site struct {
	PID    int
	Stack  *event.Stack // nil where that is not known
	Region event.Region
	// Layout is that of buffers, and Static the kind of circular buffers; NotStatic for
	// buffers.
	Layout event.Layout
	Static event.StaticKind
	// BeforeAttach marks what was there before the process was attached.
	BeforeAttach bool
	// PerCore marks buffers that are on single cores.
	PerCore bool
	// Devices are the chips that each buffer is on. They must not be modified.
	Devices []int
}

// A SiteKey identifies a Site, also in other States of the same recording, in which equal
// stacks have equal IDs.
type SiteKey struct {
	siteKey
	pid     int
	devices string
}

// Key returns the key of the site.
func (s *Site) Key() SiteKey {
	return SiteKey{
		siteKey{stackID(s.Stack), s.Region, s.Layout, s.Static, s.BeforeAttach, s.PerCore}, s.PID, DevicesKey(s.Devices),
	}
}

// DevicesKey returns the same string for the same chips.
func DevicesKey(ids []int) string {
	key := make([]byte, 0, 64)
	for _, id := range ids {
		key = binary.AppendUvarint(key, uint64(id))
	}
	return string(key)
}

// view returns the site for readers of the State.
func (c *callSite) view() Site {
	return Site{
		PID: c.set.process.pid, Stack: c.stack, Region: c.region, Layout: c.layout, Static: c.static,
		BeforeAttach: c.before, PerCore: c.perCore, Devices: slices.Clip(c.set.ids),
	}
}

// A SiteAmount is what one call site has, with the bytes on each of the chips: of all banks,
// or all cores. At a peak of L1 they are per core.
type SiteAmount struct {
	Site
	Amount
}

// A CallSite is what one call site has live, and what it allocated.
type CallSite struct {
	SiteAmount
	// Fresh is the live part that was allocated after MarkFresh.
	Fresh Amount
	// EachBytes is what each takes on each of the chips; 0 where that differs.
	EachBytes uint64
	// Allocated is how many were allocated in all.
	Allocated uint64
	// SinceNs is since when there was one at any time.
	SinceNs uint64
}

// MarkFresh has what is allocated from now on counted as Fresh, and returns the time.
func (s *State) MarkFresh() (ns uint64) {
	s.freshSince = s.now
	for _, first := range s.sites {
		for c := range first.all() {
			c.fresh = Amount{}
		}
	}
	return s.now
}

// CallSites returns the call sites, in no order, also some that have nothing live any more.
// Circular buffers that lie in an L1 buffer are not among them. The cost is that of the
// call sites, not of the buffers.
func (s *State) CallSites() []CallSite {
	var list []CallSite
	// circular buffers have a site for each chip: what is the same on several is one
	type same struct {
		siteKey
		process         *processName
		live, fresh     Amount
		each, allocated uint64
	}
	index := make(map[same]int)
	for _, c := range s.sites {
		if c.region == event.Kernel {
			continue
		}
		h := c.holding()
		if c.region == event.CB {
			k := same{c.siteKey, c.set.process, h.Amount, h.Fresh, h.EachBytes, h.Allocated}
			if at, ok := index[k]; ok {
				one := &list[at]
				one.Devices = append(slices.Clip(one.Devices), h.Devices...)
				slices.Sort(one.Devices)
				one.SinceNs = min(one.SinceNs, h.SinceNs)
				continue
			}
			index[k] = len(list)
		}
		list = append(list, h)
	}
	return list
}

// holding is what the site has with all allocators.
func (c *callSite) holding() CallSite {
	h := CallSite{SiteAmount: SiteAmount{Site: c.view()}, EachBytes: c.each, SinceNs: c.since}
	for one := range c.all() {
		switch {
		case one.live.Count == 0:
		case h.Count == 0:
			h.EachBytes, h.SinceNs = one.each, one.since
		default:
			h.SinceNs = min(h.SinceNs, one.since)
			if one.each != h.EachBytes {
				h.EachBytes = 0
			}
		}
		h.Amount.Add(one.live.Amount)
		h.Fresh.Add(one.fresh)
		h.Allocated += one.allocated.Count
	}
	return h
}

func stackID(s *event.Stack) uint64 {
	if s == nil {
		return 0
	}
	return s.ID
}
