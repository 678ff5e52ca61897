package page

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Regions are the regions of buffers, in the order of pages.
var Regions = []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace, event.SystemMemory}

// L1PerCore is the title of L1, whose figures are per core.
const L1PerCore = "L1 per core"

// RegionTitle returns the title of a region, and the format of its bytes.
func RegionTitle(region event.Region) (title string, format func(uint64) string) {
	if region == event.L1 {
		return L1PerCore, KiB
	}
	return region.String(), Bytes
}

// A RegionUse is the use of a region of a chip, now and at its peak.
type RegionUse struct {
	Bytes, PeakBytes, PeakTimeNs, CapacityBytes uint64
	// AtLeast is true if the peak may have been higher.
	AtLeast bool
}

// UseOf returns the use of a region; for L1 it is per core, with the program that runs.
func UseOf(d *memory.Device, region event.Region) RegionUse {
	if l := &d.L1PerCore; region == event.L1 {
		return RegionUse{l.BufferBytes + l.CBBytes, l.Peak.Bytes(), l.Peak.TimeNs, l.CapacityBytes, l.Peak.AtLeast}
	}
	b := d.Regions.Banked(region)
	return RegionUse{b.AllocatedBytes, b.PeakBytes, b.PeakTimeNs, b.CapacityBytes, false}
}
