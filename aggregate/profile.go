package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// NoDevice stands for the chip of what was allocated on no known one.
const NoDevice = -1

// A Profile is device memory by the call stack that allocated it: per process, chip and
// region. It does not change afterwards.
//
// The bytes are those of the State's totals: of a buffer what it takes of all
// its banks on each chip; of a circular buffer its size on all its cores, by
// the plain sum over programs (StaticUse.SumBytes), as no share of a union
// belongs to one stack; of a program's kernels their binaries in DRAM
// (KernelsUse.DRAMBytes), which lie in DRAM buffers and count there too.
// Circular buffers that lie in an L1 buffer are counted there alone.
type Profile struct {
	// Samples are in order of process, chip and region and otherwise as the stacks were
	// first seen.
	Samples []Sample
	// Processes are those that were seen, in order of their ids.
	Processes []ProfileProcess
	// Peaks are when each region that held any bytes was fullest, in order of chip and
	// region. Circular buffers are part of that of L1, and kernels of that of DRAM.
	Peaks []Peak
	// FirstNs and LastNs are the times of the first and the latest event, CLOCK_MONOTONIC.
	FirstNs, LastNs uint64
}

// A Sample is what one call stack allocated, in one region of one chip.
type Sample struct {
	PID int
	// Device is the chip's id, or NoDevice.
	Device int
	Region event.Region
	// Stack is nil for all that came without one: from before the attach, while
	// the table of stacks was full, or because none were wanted.
	Stack *event.Stack
	// Allocated is all that was ever allocated.
	Allocated Amount
	// Live is what was not given back explicitly: what is allocated now, and
	// what still was when its device was closed or its process ended.
	Live Amount
	// Peak is what was allocated when the region of the chip was fullest.
	Peak Amount
}

// A ProfileProcess is a process of a Profile.
type ProfileProcess struct {
	PID int
	// Comm is the name that the process started with, or of its first thread
	// that was seen; Command is its command line, where known.
	Comm, Command string
}

// A Peak is when one region of a chip was fullest: see RegionPeak.
type Peak struct {
	Device int
	Region event.Region
	Bytes  uint64
	TimeNs uint64
}

// Profile returns what was allocated by now: all that was ever allocated only after
// KeepSites. Its cost is that of the call sites.
func (s *State) Profile() *Profile {
	p := &Profile{FirstNs: s.first, LastNs: s.now}
	type key struct {
		stack       uint64
		pid, device int
		region      event.Region
	}
	index := make(map[key]int, len(s.sites))
	names := make(map[int]*processName)
	for _, c := range s.sites {
		names[c.set.process.pid] = c.set.process // the latest of the id
		for i, q := range c.set.poolsOf(c.region) {
			// the same stack may allocate on several sets with the chip in it
			k := key{c.stackID, c.set.process.pid, q.device(), c.region}
			at, ok := index[k]
			if !ok {
				at = len(p.Samples)
				index[k] = at
				p.Samples = append(p.Samples, Sample{PID: k.pid, Device: k.device, Region: k.region, Stack: c.stack})
			}
			one := &p.Samples[at]
			for with := range c.all() {
				one.Allocated.Add(with.allocated)
				one.Live.Add(with.live.Amount)
				one.Live.Add(with.ended)
			}
			one.Peak.Add(c.peakIn(i).Amount)
		}
	}
	slices.SortStableFunc(p.Samples, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Region, b.Region))
	})
	for pid, running := range s.processes {
		names[pid] = running.name
	}
	for _, pid := range sortedKeys(names) {
		p.Processes = append(p.Processes, ProfileProcess{pid, names[pid].comm, names[pid].about.Command})
	}
	for _, q := range s.allPools() {
		if q.peak.bytes > 0 {
			p.Peaks = append(p.Peaks, Peak{q.device(), q.region, q.peak.bytes, q.peak.time})
		}
	}
	return p
}
