package tracer

import (
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

func (d *decoder) cb(e event.Event, r *bpf.KernelCbRecord) {
	p := d.start(&e, d.host.library(r.H.Library))
	e.Kind, e.Region = event.CBAlloc, event.CB
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.ProgramID, e.Address, e.SizeBytes = r.ProgramId, r.Address, r.SizeBytes
	e.StaticKind = event.StaticKind(r.H.StaticKind)
	e.Global = r.H.Flags&bpf.CBGlobal != 0
	for _, c := range r.Ranges[:min(int(r.H.Count), len(r.Ranges))] {
		e.Cores = append(e.Cores, event.CoreRange{X0: c.X0, Y0: c.Y0, X1: c.X1, Y1: c.Y1})
	}
	e.Devices = d.chips(e.PID, p, r.Device)
	d.emit(e)
	p.hold(&e)
}

// hold stores that the program of an event has memory.
func (p *traced) hold(e *event.Event) {
	what := bpf.ProgramDFBs
	switch {
	case e.Kind == event.KernelLoad:
		what = bpf.ProgramKernels
	case e.StaticKind == event.CircularBuffer:
		what = bpf.ProgramCBs
	}
	p.programs[e.ProgramID] = program{p.programs[e.ProgramID].holds | what, e.TimeNs}
}

func (d *decoder) programEnd(e event.Event, r *bpf.KernelProgramEndRecord) {
	p := d.start(&e, d.host.library(r.H.Library))
	d.endProgram(e, p, r.ProgramId, r.H.Flags)
}

// endProgram reports what a program released.
func (d *decoder) endProgram(e event.Event, p *traced, id uint64, flags uint8) {
	if left := p.programs[id].holds &^ flags; left != 0 {
		p.programs[id] = program{left, e.TimeNs}
	} else {
		delete(p.programs, id)
	}
	e.ProgramID = id
	end := func(kind event.Kind, region event.Region, static event.StaticKind) {
		e.Kind, e.Region, e.StaticKind = kind, region, static
		d.emit(e)
	}
	switch cbs := flags & (bpf.ProgramCBs | bpf.ProgramDFBs); cbs {
	case bpf.ProgramCBs:
		end(event.CBFree, event.CB, event.CircularBuffer)
	case bpf.ProgramDFBs:
		end(event.CBFree, event.CB, event.DataflowBuffer)
	case bpf.ProgramCBs | bpf.ProgramDFBs:
		end(event.CBFree, event.CB, event.NotStatic)
	}
	if flags&bpf.ProgramKernels != 0 {
		end(event.KernelUnload, event.Kernel, event.NotStatic)
	}
}

func (d *decoder) kernel(e event.Event, r *bpf.KernelKernelRecord) {
	lib := d.host.library(r.H.Library)
	p := d.start(&e, lib)
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.ProgramID, e.SizeBytes, e.BytesPerBank = r.ProgramId, r.BinaryBytes, r.TextBytes
	e.Devices = d.chips(e.PID, p, r.Device)
	d.emit(e)
	p.hold(&e)
	if lib == nil || lib.Kernel.ProgramDfbs == bpf.NoField {
		return
	}
	// the library calls no function for a scratchpad that could be probed
	program, err := lib.ReadProgram(e.PID, r.Impl)
	if err != nil || program.ID != r.ProgramId {
		return // the program is gone, and its memory with it
	}
	for _, s := range program.Statics {
		if s.Kind == event.Scratchpad {
			d.static(e, p, s)
		}
	}
}

// static reports a range of L1 that was read from a program.
func (d *decoder) static(e event.Event, p *traced, s heap.Static) {
	e.Kind, e.Region, e.StaticKind, e.BytesPerBank = event.CBAlloc, event.CB, s.Kind, 0
	e.Address, e.SizeBytes, e.Cores, e.Global = s.Address, s.Bytes, s.Cores, s.Global
	d.emit(e)
	p.hold(&e)
}

// programSeen reports the memory of a program that was compiled before the attach. The
// program is read now; it may have been destroyed since the record was sent.
func (d *decoder) programSeen(e event.Event, r *bpf.KernelProgramSeenRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown(e.PID, "library not known")
		return
	}
	p := d.start(&e, lib)
	program, err := lib.ReadProgram(e.PID, r.Impl)
	switch {
	case err == nil && program.ID != r.ProgramId, err != nil && host.HasNoMemory(e.PID):
		return // the program is gone, and its memory with it
	case err != nil:
		d.unknown(e.PID, "program not readable")
		return
	}
	local := func(s heap.Static) bool { return !s.Global }
	if r.H.Flags == bpf.ProgramCBs && !slices.ContainsFunc(program.Statics, local) {
		return // buffers in tensors allocate nothing: the program may be about to be compiled
	}
	if known := p.programs[r.ProgramId]; known.holds != 0 { // it is reported again after a loss
		d.endProgram(e, p, r.ProgramId, known.holds)
	}
	e.ProgramID, e.Devices, e.BeforeAttach = r.ProgramId, d.chips(e.PID, p, r.Device), true
	for _, s := range program.Statics {
		holds := bpf.ProgramDFBs
		if s.Kind == event.CircularBuffer {
			holds = bpf.ProgramCBs
		}
		if r.H.Flags&holds == 0 {
			continue // placed since then, as an event reports
		}
		d.static(e, p, s)
	}
	if r.H.Flags&bpf.ProgramKernels != 0 {
		e.Kind, e.Region = event.KernelLoad, event.Kernel
		e.SizeBytes, e.BytesPerBank = program.BinaryBytes, program.TextBytes
		d.emit(e)
		p.hold(&e)
	}
}
