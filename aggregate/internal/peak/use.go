package peak

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Use is the present use of one chip, by all processes or by one.
type Use struct {
	Regions [event.BankedRegions]memory.Tally // of buffers
	Load    cores.Load                        // of buffers on single cores of L1

	// static is without the parts of the largest program, and kernels without MaxBytesPerCore.
	static  memory.StaticUse
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
}

// CountPrograms adds n programs with circular buffers; n may be negative.
func (u *Use) CountPrograms(n int) { u.static.Programs += uint64(n) }

// CountKernels adds the kernels of a program if n is 1, and removes them if n is -1: the bytes of
// their binaries in DRAM, and of their text on each core.
func (u *Use) CountKernels(n int, kind event.KernelKind, dram, text uint64) {
	if runtime := u.kernels.Of(kind); runtime != nil {
		runtime.Programs += uint64(n)
		return
	}
	u.kernels.Programs += uint64(n)
	u.kernels.DRAMBytes += uint64(n) * dram
	u.kernels.SumBytes += uint64(n) * text
}

// Of returns the use of a region by buffers, in bytes as pools count them.
func (u *Use) Of(region event.Region) uint64 {
	if region != event.L1 {
		return u.Regions[region].Bytes
	}
	_, load := u.Load.Fullest()
	return u.Regions[region].PerBank + load
}

// HasPrograms reports whether any program has circular buffers.
func (u *Use) HasPrograms() bool { return u.static.Programs > 0 }

// HasBuffers reports whether any buffer is live.
func (u *Use) HasBuffers() bool {
	return slices.ContainsFunc(u.Regions[:], func(t memory.Tally) bool { return t.Count > 0 })
}

// Programs are the figures of a chip's programs that are not sums: of the largest one, and of the one
// that runs now, if any.
type Programs struct {
	// TextMax is the largest text of a program on each core, by kinds of kernels.
	TextMax [event.NumKernelKinds]uint64
	// Silent is true if a process has or had programs, and the kernels of none were reported.
	Silent bool
	// MostPerCore is the most that a program needs on its fullest core, and MostBytes the most that
	// one needs on all its cores.
	MostPerCore, MostBytes uint64
	// Running is what a program that runs now adds to the buffers of the fullest core.
	Running uint64
}

// With returns the figures of these programs and of others.
func (p Programs) With(o Programs) Programs {
	for kind := range p.TextMax {
		p.TextMax[kind] = max(p.TextMax[kind], o.TextMax[kind])
	}
	p.Silent = p.Silent || o.Silent
	p.MostPerCore, p.MostBytes = max(p.MostPerCore, o.MostPerCore), max(p.MostBytes, o.MostBytes)
	return p
}

// View returns the use for a Snapshot, without the identity of the chip.
func (u *Use) View(capacities *memory.Capacities, programs Programs, peaks Peaks) (d memory.Device) {
	l1Peak := peaks[event.L1]
	peaks[event.L1] = Peak{}
	for r := range u.Regions {
		*d.Regions.Banked(event.Region(r)) = regionOf(&u.Regions[r], capacities[r], &peaks[r])
	}
	used := u.Of(event.L1)
	d.Regions.L1.BytesPerBank = used
	d.Regions.CB = u.static
	d.Regions.CB.MaxBytesPerCore, d.Regions.CB.Bytes = programs.MostPerCore, programs.MostBytes
	d.Regions.Kernel = u.kernels
	d.Regions.Kernel.MaxBytesPerCore = programs.TextMax[event.WorkerKernels]
	d.Regions.Kernel.NotReported = u.kernels.Programs == 0 && programs.Silent
	for kind := range event.NumKernelKinds {
		if runtime := d.Regions.Kernel.Of(kind); runtime != nil {
			runtime.MaxBytesPerCore = programs.TextMax[kind]
		}
	}
	l1 := &d.L1PerCore
	l1.CapacityBytes = d.Regions.L1.CapacityBytesPerBank
	l1.BufferBytes, l1.CBBytes, l1.LargestProgramBytes = used, programs.Running, programs.MostPerCore
	l1.FreeBytes = l1.CapacityBytes - min(l1.CapacityBytes, l1.BufferBytes+l1.CBBytes)
	l1.Peak = memory.L1Peak{TimeNs: l1Peak.TimeNs, BufferBytes: l1Peak.Bytes - l1Peak.Static, CBBytes: l1Peak.Static}
	return d
}

// regionOf returns the view of a region that has these buffers.
func regionOf(t *memory.Tally, capacity event.Capacity, most *Peak) memory.Region {
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
