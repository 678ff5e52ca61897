package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// A DeviceProcess is a process that uses a chip, with its share of the chip.
type DeviceProcess struct {
	PID int `json:"pid"`
	// AllocatedBytes is what its buffers occupy in all banks, by the names of the
	// regions in which it has any.
	AllocatedBytes map[string]uint64 `json:"allocated_bytes"`
	// CBMaxBytesPerCore is what its circular buffers occupy of the core where they
	// occupy most.
	CBMaxBytesPerCore uint64 `json:"cb_max_bytes_per_core"`
}

// Bytes returns what its buffers occupy in all regions.
func (p *DeviceProcess) Bytes() uint64 {
	var sum uint64
	for _, n := range p.AllocatedBytes {
		sum += n
	}
	return sum
}

// OtherUsers is the sum of the other users' processes on a chip.
type OtherUsers struct {
	Processes int `json:"processes"`
	// AllocatedBytes is what their buffers occupy in all banks of all regions.
	AllocatedBytes uint64 `json:"allocated_bytes"`
}

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
func deviceProcess(pid int, d *Device) DeviceProcess {
	p := DeviceProcess{
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
