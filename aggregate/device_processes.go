package aggregate

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// usedChips returns the chips that the process has open, or has buffers or programs on.
func (p *process) usedChips() map[int]bool {
	used := make(map[int]bool)
	for _, a := range p.allocators {
		for _, c := range a.set.chips {
			used[c.chip.id] = true
		}
	}
	for id, c := range p.chips {
		hasBuffers := func(t tally) bool { return t.Count > 0 }
		if len(c.programs) > 0 || slices.ContainsFunc(c.used.regions[:], hasBuffers) {
			used[id] = true
		}
	}
	return used
}

// deviceProcess returns the process's share of a chip. d is the process's view of the chip.
func deviceProcess(pid int, d *memory.Device) memory.DeviceProcess {
	p := memory.DeviceProcess{
		PID: pid, AllocatedBytes: make(map[string]uint64),
		CBMaxBytesPerCore: d.Regions.CB.MaxBytesPerCore,
	}
	for region := range event.Region(event.BankedRegions) {
		if b := d.Regions.Banked(region); b.Buffers > 0 {
			p.AllocatedBytes[region.String()] = b.AllocatedBytes
		}
	}
	return p
}
