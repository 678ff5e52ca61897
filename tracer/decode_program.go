package tracer

import (
	"context"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/libraries"
	"ttmem/tracer/quota"
)

func (d *decoder) cb(p *process, e event.Event, r *bpf.KernelCbRecord) {
	d.begin(p, &e, &r.H)
	e.Kind, e.Region = event.CBAlloc, event.CB
	e.ProgramID, e.Address, e.SizeBytes = r.ProgramId, r.Address, r.SizeBytes
	e.Stack = p.operationStack(&e, r.H.Stack)
	e.StaticKind = event.StaticKind(r.H.StaticKind)
	e.Global = r.H.Flags&bpf.CBGlobal != 0
	for _, c := range r.Ranges[:min(int(r.H.Count), len(r.Ranges))] {
		e.Cores = append(e.Cores, event.CoreRange{X0: c.X0, Y0: c.Y0, X1: c.X1, Y1: c.Y1})
	}
	if e.StaticKind == event.Scratchpad && !p.subtractPlaced(&e) || !d.fitsProgram(&e, p) {
		return
	}
	e.Devices = d.chips(p, r.Device)
	d.emit(e)
	p.hold(&e)
}

// subtractPlaced removes from the event of a scratchpad the buffers before it on its cores: the
// record names a whole region of the program. It returns false if nothing is left.
func (p *process) subtractPlaced(e *event.Event) bool {
	for _, s := range p.programs[e.ProgramID].placed {
		if s.end > e.Address && slices.Contains(e.Cores, s.cores) {
			n := min(s.end-e.Address, e.SizeBytes)
			e.Address, e.SizeBytes = e.Address+n, e.SizeBytes-n
		}
	}
	return e.SizeBytes > 0
}

func (d *decoder) programRun(p *process, e event.Event, r *bpf.KernelProgramRunRecord) {
	d.begin(p, &e, &r.H)
	e.Kind, e.ProgramID = event.ProgramRun, r.ProgramId
	e.Stack = p.stacks.Stack(r.H.Stack)
	e.Devices = d.chips(p, r.Device)
	d.emit(e)
	if len(p.runs) >= maxRuns {
		clear(p.runs) // a run is only needed until its program is placed, right after it
	}
	p.runs[e.ProgramID] = latestRun{e.TID, e.Stack}
}

// maxRuns bounds the runs of a process that are remembered.
const maxRuns = 1 << 12

// operationStack returns the call stack of the operation that an event of a program belongs to. The
// library may place a program on another thread, of a pool, than the one that enqueued it.
func (p *process) operationStack(e *event.Event, own bpf.KernelStackIds) *event.Stack {
	if run, ok := p.runs[e.ProgramID]; ok && run.tid != e.TID && run.stack != nil {
		return run.stack
	}
	return p.stacks.Stack(own)
}

// traceSteps are the kinds of events by what happens to a captured trace.
var traceSteps = [...]event.Kind{
	bpf.TraceBegin: event.TraceBegin, bpf.TraceEnd: event.TraceEnd, bpf.TraceReplay: event.TraceReplay, bpf.TraceRelease: event.TraceRelease,
}

// traceStep reports what happens to a captured trace.
func (d *decoder) traceStep(p *process, e event.Event, r *bpf.KernelTraceRecord) {
	d.begin(p, &e, &r.H)
	if int(r.H.StaticKind) >= len(traceSteps) || traceSteps[r.H.StaticKind] == 0 {
		d.unknown(p, "step of a trace not known")
		return
	}
	e.Kind, e.ProgramID = traceSteps[r.H.StaticKind], uint64(r.Id)
	e.Stack = p.stacks.Stack(r.H.Stack)
	mesh := r.Device
	if address, ok := p.impls[mesh]; ok {
		mesh = address
	}
	e.Devices = d.chips(p, mesh)
	d.emit(e)
}

// fitsProgram reports whether the program of an event is known or may be.
func (d *decoder) fitsProgram(e *event.Event, p *process) bool {
	_, known := p.programs[e.ProgramID]
	return known || d.fits(p, quota.Program)
}

// hold notes that the program of an event has memory.
func (p *process) hold(e *event.Event) {
	what := bpf.ProgramDFBs
	switch {
	case e.Kind == event.KernelLoad:
		what = bpf.ProgramKernels
	case e.StaticKind == event.CircularBuffer:
		what = bpf.ProgramCBs
	}
	g := p.programs[e.ProgramID]
	g.holds, g.timeNs = g.holds|what, e.TimeNs
	if what == bpf.ProgramKernels {
		for _, chip := range e.Devices {
			if !slices.Contains(g.loaded, chip) {
				g.loaded = append(g.loaded, chip)
			}
		}
	}
	if what == bpf.ProgramDFBs && len(e.Cores) == 1 {
		g.place(e.Cores[0], e.Address+e.SizeBytes)
	}
	p.programs[e.ProgramID] = g
}

// place notes where a dataflow buffer or scratchpad ends.
func (g *program) place(cores event.CoreRange, end uint64) {
	i := slices.IndexFunc(g.placed, func(s placedEnd) bool { return s.cores == cores })
	switch {
	case i >= 0:
		g.placed[i].end = max(g.placed[i].end, end)
	case len(g.placed) < maxPlaced:
		g.placed = append(g.placed, placedEnd{cores, end})
	}
}

func (d *decoder) programEnd(p *process, e event.Event, r *bpf.KernelProgramEndRecord) {
	d.begin(p, &e, &r.H)
	p.release(r.ProgramId, r.H.Flags)
	d.endProgram(e, p, r.ProgramId, r.H.Flags)
}

// endProgram reports the memory that a program released.
func (d *decoder) endProgram(e event.Event, p *process, id uint64, flags uint8) {
	g := p.programs[id]
	g.holds, g.timeNs = g.holds&^flags, e.TimeNs
	if flags&bpf.ProgramKernels != 0 {
		g.loaded = nil
	}
	if flags&bpf.ProgramDFBs != 0 {
		g.placed = nil
	}
	if p.programs[id] = g; g.holds == 0 {
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
	if flags&bpf.ProgramKernels != 0 && p.takeCompiled(id) == nil {
		end(event.KernelUnload, event.Kernel, event.NotStatic)
	}
}

func (d *decoder) kernelLoaded(p *process, e event.Event, r *bpf.KernelKernelRecord) {
	d.begin(p, &e, &r.H)
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	e.ProgramID, e.SizeBytes, e.BytesPerBank = r.ProgramId, r.BinaryBytes, r.TextBytes
	e.Stack = p.operationStack(&e, r.H.Stack)
	e.Devices = d.chips(p, r.Device)
	p.takeCompiled(e.ProgramID)
	if r.H.Flags == bpf.KernelCompiled {
		if len(p.compiled) >= maxCompiled {
			p.compiled = slices.Delete(p.compiled, 0, 1)
		}
		p.compiled = append(p.compiled, e)
		return
	}
	e.KernelKind = event.KernelKind(r.H.Flags)
	d.loadKernels(e, p)
}

// maxCompiled bounds the programs of a process that are compiled and not loaded.
const maxCompiled = 1 << 10

// takeCompiled removes a program from those that are not loaded; nil if it is none of them.
func (p *process) takeCompiled(id uint64) *event.Event {
	i := slices.IndexFunc(p.compiled, func(e event.Event) bool { return e.ProgramID == id })
	if i < 0 {
		return nil
	}
	e := p.compiled[i]
	p.compiled = slices.Delete(p.compiled, i, i+1)
	return &e
}

// loadKernels reports the kernels of a program, unless its chips have them: slow dispatch loads them
// at each run.
func (d *decoder) loadKernels(e event.Event, p *process) {
	has := p.programs[e.ProgramID].loaded
	if len(has) > 0 && !slices.ContainsFunc(e.Devices, func(chip int) bool { return !slices.Contains(has, chip) }) {
		return
	}
	if d.fitsProgram(&e, p) {
		d.emit(e)
		p.hold(&e)
	}
}

// binariesLoaded reports the kernels of the programs that the thread compiled last.
func (d *decoder) binariesLoaded(p *process, e event.Event, h *bpf.KernelHeader) {
	var loaded []event.Event
	for i := len(p.compiled) - 1; i >= 0 && len(loaded) < int(h.Count); i-- {
		if one := p.compiled[i]; one.TID == e.TID {
			one.TimeNs = e.TimeNs
			loaded = append(loaded, one)
			p.compiled = slices.Delete(p.compiled, i, i+1)
		}
	}
	for _, one := range slices.Backward(loaded) {
		d.loadKernels(one, p)
	}
}

// runtimeKernels reports the kernels of command queues and of the fabric that were read from a
// process's memory. Without a record of their end, they end with their device.
func (d *decoder) runtimeKernels(p *process, e event.Event, devices []heap.Device) {
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	for _, dev := range devices {
		if dev.Allocator != 0 && p.allocators[dev.Allocator] == nil {
			continue // a fork: it is its parent's
		}
		for _, r := range dev.Runtime {
			if p.programs[r.ID].holds&bpf.ProgramKernels != 0 {
				continue
			}
			d.start(p, &e)
			e.ProgramID, e.KernelKind, e.BytesPerBank, e.Devices = r.ID, r.Kind, r.TextBytes, []int{r.Chip}
			d.loadKernels(e, p)
			g := p.programs[r.ID]
			g.unended = true
			p.programs[r.ID] = g
		}
	}
}

// endRuntimeKernels reports the end of kernels on chips on which the process has no device any more,
// if no record will.
func (d *decoder) endRuntimeKernels(e event.Event, p *process) {
	open := func(chip int) bool {
		for _, a := range p.allocators {
			if slices.Contains(a.device.chips, chip) {
				return true
			}
		}
		return false
	}
	for id, g := range p.programs {
		if g.unended && !slices.ContainsFunc(g.loaded, open) {
			e.Devices = g.loaded
			d.endProgram(e, p, id, bpf.ProgramKernels)
		}
	}
}

// static reports a range of L1 that was read from a program.
func (d *decoder) static(e event.Event, p *process, s heap.Static) {
	e.Kind, e.Region, e.StaticKind, e.BytesPerBank = event.CBAlloc, event.CB, s.Kind, 0
	e.Address, e.SizeBytes, e.Cores, e.Global = s.Address, s.Bytes, s.Cores, s.Global
	if d.fitsProgram(&e, p) {
		d.emit(e)
		p.hold(&e)
	}
}

// programSeen reports the memory of a program that was compiled before the attach.
func (d *decoder) programSeen(p *process, e event.Event, r *bpf.KernelProgramSeenRecord) {
	lib := d.libraryOf(p, r.H.Library)
	if lib == nil {
		d.unknown(p, "library not known")
		return
	}
	d.start(p, &e)
	if known := p.programs[r.ProgramId]; known.holds != 0 { // a repeated report, after a loss
		p.release(r.ProgramId, known.holds)
		d.endProgram(e, p, r.ProgramId, known.holds)
	}
	e.ProgramID, e.BeforeAttach = r.ProgramId, true
	flags, device := r.H.Flags, r.Device // the record is overwritten by the next one
	d.readProgram(p, e, lib, r.Impl, flags, func(e event.Event, holds uint8, program *heap.Program) {
		local := func(s heap.Static) bool { return !s.Global }
		if flags == bpf.ProgramCBs && !slices.ContainsFunc(program.Statics, local) {
			return // it has only buffers in tensors, which allocate nothing: it may be compiled next
		}
		e.Devices = d.chips(p, device)
		for _, s := range program.Statics {
			kind := bpf.ProgramDFBs
			if s.Kind == event.CircularBuffer {
				kind = bpf.ProgramCBs
			}
			if holds&kind != 0 { // else an event has reported a newer place
				d.static(e, p, s)
			}
		}
		if holds&bpf.ProgramKernels != 0 {
			e.Kind, e.Region = event.KernelLoad, event.Kernel
			e.SizeBytes, e.BytesPerBank = program.BinaryBytes, program.TextBytes
			d.loadKernels(e, p)
		}
	})
}

// programRead is a program that is being read.
type programRead struct {
	holds uint8 // flags of the memory to report; cleared if it is released meanwhile
}

// Causes of losses of programs that existed before the attach.
const (
	programUnread = "program not readable"
	programGone   = "program released its memory before it was read"
)

// readProgram reads the program of an event, and calls report with the flags of the memory that
// the program still has. It may have been destroyed since the record was sent.
func (d *decoder) readProgram(p *process, e event.Event, lib *libraries.Library, impl uint64, holds uint8, report func(event.Event, uint8, *heap.Program)) {
	r := &programRead{holds}
	added := d.reads.add(p, e.TimeNs, func(ctx context.Context, of host.ReadableProcess) func() {
		program, err := lib.ReadProgram(ctx, of, impl)
		gone := err == nil && program.ID != e.ProgramID || err != nil && d.reads.readers.HasNoMemory(e.PID)
		return func() {
			p.forget(e.ProgramID, r)
			switch {
			case gone || r.holds == 0:
				d.unknown(p, programGone)
			case err != nil:
				d.unknown(p, programUnread)
			default:
				e.TimeNs = max(e.TimeNs, d.queue.released)
				report(e, r.holds, &program)
			}
		}
	})
	if added {
		p.unread[e.ProgramID] = append(p.unread[e.ProgramID], r)
	} else {
		d.unknown(p, programUnread)
	}
}

func (p *process) forget(program uint64, r *programRead) {
	list := slices.DeleteFunc(p.unread[program], func(other *programRead) bool { return other == r })
	if p.unread[program] = list; len(list) == 0 {
		delete(p.unread, program)
	}
}

// release notes the memory that a program releases while it is being read.
func (p *process) release(program uint64, flags uint8) {
	for _, r := range p.unread[program] {
		r.holds &^= flags
	}
}

// endReads counts the programs of a process that are still being read when it or tracing ends.
func (d *decoder) endReads(p *process, cause string) {
	for _, list := range p.unread {
		d.lose(p, cause, uint64(len(list)), 0)
	}
	clear(p.unread)
}
