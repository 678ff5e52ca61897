// Package use counts the memory of one chip that is in use, by all processes or by one of them.
package use

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/peak"
	"ttmem/tracer/event"
)

// A Use is the use of one chip.
type Use struct {
	Regions [event.BankedRegions]memory.Tally // of buffers
	Load    cores.Load                        // of buffers on single cores of L1

	// static is without the parts that depend on the core, and kernels without MaxBytesPerCore.
	static  memory.StaticUse
	places  cores.Usage
	kernels memory.KernelsUse
}

// CountStatic adds a circular buffer, dataflow buffer or scratchpad of a program if n is 1, and
// removes it if n is -1.
func (u *Use) CountStatic(n int, place cores.Place, global bool) {
	if global {
		u.static.GlobalCount += uint64(n)
		return
	}
	u.static.Count += uint64(n)
	u.static.SumBytes += uint64(n) * place.Bytes()
	if n > 0 {
		u.places.Add(place)
	} else {
		u.places.Remove(place)
	}
}

// CountPrograms adds n programs with circular buffers; n may be negative.
func (u *Use) CountPrograms(n int) { u.static.Programs += uint64(n) }

// CountKernels adds the kernels of a program if n is 1, and removes them if n is -1: the bytes of
// their binaries in DRAM, and of their text on each core.
func (u *Use) CountKernels(n int, dram, text uint64) {
	u.kernels.Programs += uint64(n)
	u.kernels.DRAMBytes += uint64(n) * dram
	u.kernels.SumBytes += uint64(n) * text
}

// Top is the fullest core of the chip's L1, without the buffers that are in all banks.
func (u *Use) Top() cores.Top { return cores.TopOf(&u.Load, &u.places) }

// Of returns the use of a region in bytes as pools count them. static is the part of circular
// buffers.
func (u *Use) Of(region event.Region) (bytes, static uint64) {
	if region != event.L1 {
		return u.Regions[region].Bytes, 0
	}
	top := u.Top()
	return u.Regions[region].PerBank + top.Bytes, top.Static
}

// HasBuffers reports whether any buffer is live.
func (u *Use) HasBuffers() bool {
	return slices.ContainsFunc(u.Regions[:], func(t memory.Tally) bool { return t.Count > 0 })
}

// View returns the use for a Snapshot, without the identity of the chip. textMax is the largest text
// of a program on each core.
func (u *Use) View(capacities *memory.Capacities, textMax uint64, peaks peak.Peaks) (d memory.Device) {
	l1Peak := peaks[event.L1]
	peaks[event.L1] = peak.Peak{}
	for r := range u.Regions {
		*d.Regions.Banked(event.Region(r)) = regionOf(&u.Regions[r], capacities[r], &peaks[r])
	}
	d.Regions.L1.BytesPerBank += u.Load.Max()
	d.Regions.CB = u.static
	d.Regions.CB.MaxBytesPerCore, d.Regions.CB.Bytes = u.places.Max(), u.places.Bytes()
	d.Regions.Kernel = u.kernels
	d.Regions.Kernel.MaxBytesPerCore = textMax
	l1 := &d.L1PerCore
	l1.CapacityBytes = d.Regions.L1.CapacityBytesPerBank
	used, static := u.Of(event.L1)
	l1.BufferBytes, l1.CBBytes = used-static, static
	if used < l1.CapacityBytes {
		l1.FreeBytes = l1.CapacityBytes - used
	}
	l1.Peak = memory.L1Peak{TimeNs: l1Peak.TimeNs, BufferBytes: l1Peak.Bytes - l1Peak.Static, CBBytes: l1Peak.Static}
	return d
}

// regionOf returns the view of a region that has these buffers.
func regionOf(t *memory.Tally, capacity event.Capacity, most *peak.Peak) memory.Region {
	view := memory.Region{
		Buffers: t.Count, SizeBytes: t.Size, BytesPerBank: t.PerBank,
		Banks: capacity.Banks, AllocatedBytes: t.Bytes,
		CapacityBytes: capacity.Total(), CapacityBytesPerBank: capacity.BytesPerBank,
		PeakBytes: most.Bytes, PeakTimeNs: most.TimeNs, PeakCapacityBytes: most.Capacity,
	}
	if view.PeakBytes > 0 && view.PeakCapacityBytes == 0 {
		// The device was seen after its first buffers.
		view.PeakCapacityBytes = view.CapacityBytes
	}
	return view
}
