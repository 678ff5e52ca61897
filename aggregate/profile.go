package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Profile returns what was allocated by now: all that was ever allocated only after
// KeepSites. Its cost is that of the call sites.
func (s *State) Profile() *memory.Profile {
	p := &memory.Profile{FirstNs: s.first, LastNs: s.now}
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
				p.Samples = append(p.Samples, memory.Sample{PID: k.pid, Device: k.device, Region: k.region, Stack: c.stack})
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
	slices.SortStableFunc(p.Samples, func(a, b memory.Sample) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Region, b.Region))
	})
	for pid, running := range s.processes {
		names[pid] = running.name
	}
	for _, pid := range sortedKeys(names) {
		p.Processes = append(p.Processes, memory.ProfileProcess{PID: pid, Comm: names[pid].comm, Command: names[pid].about.Command})
	}
	for _, q := range s.allPools() {
		if q.peak.bytes > 0 {
			p.Peaks = append(p.Peaks, memory.Peak{Device: q.device(), Region: q.region, Bytes: q.peak.bytes, TimeNs: q.peak.time})
		}
	}
	return p
}
