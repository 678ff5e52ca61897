package tracer

import (
	"ttmem/bpf"
	"ttmem/tracer/event"
)

func (d *decoder) cb(e event.Event, r *bpf.KernelCbRecord) {
	p := d.start(&e, d.libraries(r.H.Library))
	e.Kind, e.Region = event.CBAlloc, event.CB
	e.Stack = p.stacks.stack(r.H.Stack)
	e.ProgramID, e.Address, e.SizeBytes = r.ProgramId, r.Address, r.SizeBytes
	e.StaticKind = event.StaticKind(r.H.StaticKind)
	e.Global = r.H.Flags&cbGlobal != 0
	for _, c := range r.Ranges[:min(int(r.H.Count), len(r.Ranges))] {
		e.Cores = append(e.Cores, event.CoreRange{X0: c.X0, Y0: c.Y0, X1: c.X1, Y1: c.Y1})
	}
	e.Devices = d.chips(p, r.Device)
	d.emit(e)
}

func (d *decoder) programEnd(e event.Event, r *bpf.KernelProgramEndRecord) {
	d.start(&e, d.libraries(r.H.Library))
	e.ProgramID = r.ProgramId
	end := func(kind event.Kind, region event.Region, static event.StaticKind) {
		e.Kind, e.Region, e.StaticKind = kind, region, static
		d.emit(e)
	}
	switch cbs := r.H.Flags & (programCBs | programDFBs); cbs {
	case programCBs:
		end(event.CBFree, event.CB, event.CircularBuffer)
	case programDFBs:
		end(event.CBFree, event.CB, event.DataflowBuffer)
	case programCBs | programDFBs:
		end(event.CBFree, event.CB, event.NotStatic)
	}
	if r.H.Flags&programKernels != 0 {
		end(event.KernelUnload, event.Kernel, event.NotStatic)
	}
}

func (d *decoder) kernel(e event.Event, r *bpf.KernelKernelRecord) {
	p := d.start(&e, d.libraries(r.H.Library))
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	e.Stack = p.stacks.stack(r.H.Stack)
	e.ProgramID, e.SizeBytes, e.BytesPerBank = r.ProgramId, r.BinaryBytes, r.TextBytes
	e.Devices = d.chips(p, r.Device)
	d.emit(e)
}
