package books

import (
	"context"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/quota"
)

// A program is one that has memory. Its records say which: bpf.ProgramCBs and so on. timeNs is
// the time of the last record.
type program struct {
	holds  uint8
	timeNs uint64
	placed []placedEnd
	// loaded are the chips with its kernels. unended is true if no record of its end will come.
	loaded  []int
	unended bool
}

// A latestRun says who enqueued a program last, and what it used.
type latestRun struct {
	tid   int
	stack *event.Stack
	uses  *event.Uses
}

// placedEnd is where the dataflow buffers and scratchpads of a program on some cores end.
type placedEnd struct {
	cores event.CoreRange
	end   uint64
}

// maxPlaced bounds these for a program. The kernel side reads as many: MAX_ALLOCATORS.
const maxPlaced = 256

func (b *Books) cb(e *event.Event, _ *libraries.Library, r *bpf.KernelCbRecord) {
	e.Kind, e.Region = event.CBAlloc, event.CB
	e.ProgramID, e.Address, e.SizeBytes = r.ProgramId, r.Address, r.SizeBytes
	e.Stack = b.operationStack(e, r.H.Stack)
	e.StaticKind = event.StaticKind(r.H.StaticKind)
	e.Global = r.H.Flags&bpf.CBGlobal != 0
	for _, c := range r.Ranges[:min(int(r.H.Count), len(r.Ranges))] {
		e.Cores = append(e.Cores, event.CoreRange{X0: c.X0, Y0: c.Y0, X1: c.X1, Y1: c.Y1})
	}
	if e.StaticKind == event.Scratchpad && !b.subtractPlaced(e) || !b.fitsProgram(e) {
		return
	}
	e.Devices = b.chips(r.Device)
	b.process.Emit(e)
	b.hold(e)
}

// subtractPlaced removes from the event of a scratchpad the buffers before it on its cores: the
// record names a whole region of the program. It returns false if nothing is left.
func (b *Books) subtractPlaced(e *event.Event) bool {
	for _, s := range b.programs[e.ProgramID].placed {
		if s.end > e.Address && slices.Contains(e.Cores, s.cores) {
			n := min(s.end-e.Address, e.SizeBytes)
			e.Address, e.SizeBytes = e.Address+n, e.SizeBytes-n
		}
	}
	return e.SizeBytes > 0
}

func (b *Books) programRun(e *event.Event, _ *libraries.Library, r *bpf.KernelProgramRunRecord) {
	e.Kind, e.ProgramID = event.ProgramRun, r.Run.ProgramId
	e.Stack = b.stacks.Stack(r.Run.H.Stack)
	e.Devices = b.chips(r.Run.Device)
	if r.Run.H.Flags&bpf.UsesRead != 0 {
		e.Uses = b.uses(r)
	}
	b.process.Emit(e)
	if len(b.runs) >= maxRuns {
		clear(b.runs) // a run is only needed until its program is placed, right after it
	}
	b.runs[e.ProgramID] = latestRun{e.TID, e.Stack, e.Uses}
}

// uses returns what a run uses. Runs that use the same as the one before them share it.
func (b *Books) uses(r *bpf.KernelProgramRunRecord) *event.Uses {
	words := r.Uses[:min(int(r.Run.H.Count), len(r.Uses))]
	slices.Sort(words)
	words = slices.Compact(words)
	partial := r.Run.H.Flags&(bpf.UsesTooMany|bpf.UsesUnreadable) != 0
	if last := b.runs[r.Run.ProgramId].uses; last != nil && last.Partial == partial && has(last, words) {
		return last
	}
	u := &event.Uses{Partial: partial}
	for _, word := range words {
		if word&bpf.UseStatic == 0 {
			u.Arguments = append(u.Arguments, word)
		} else {
			u.Statics = append(u.Statics, word&^bpf.UseStatic)
		}
	}
	return u
}

// has reports whether uses have exactly these words of a record.
func has(u *event.Uses, words []uint32) bool {
	arguments, statics := u.Arguments, u.Statics
	for _, word := range words {
		list := &arguments
		if word&bpf.UseStatic != 0 {
			list = &statics
		}
		if len(*list) == 0 || (*list)[0] != word&^bpf.UseStatic {
			return false
		}
		*list = (*list)[1:]
	}
	return len(arguments) == 0 && len(statics) == 0
}

// maxRuns bounds the runs of a process that are remembered.
const maxRuns = 1 << 12

// operationStack returns the call stack of the operation that an event of a program belongs to. The
// library may place a program on another thread, of a pool, than the one that enqueued it.
func (b *Books) operationStack(e *event.Event, own bpf.KernelStackIds) *event.Stack {
	if run, ok := b.runs[e.ProgramID]; ok && run.tid != e.TID && run.stack != nil {
		return run.stack
	}
	return b.stacks.Stack(own)
}

// traceSteps are the kinds of events by what happens to a captured trace.
var traceSteps = [...]event.Kind{
	bpf.TraceBegin: event.TraceBegin, bpf.TraceEnd: event.TraceEnd, bpf.TraceReplay: event.TraceReplay, bpf.TraceRelease: event.TraceRelease,
}

// traceStep reports what happens to a captured trace.
func (b *Books) traceStep(e *event.Event, _ *libraries.Library, r *bpf.KernelTraceRecord) {
	if int(r.H.StaticKind) >= len(traceSteps) || traceSteps[r.H.StaticKind] == 0 {
		b.process.Lost("step of a trace not known")
		return
	}
	e.Kind, e.ProgramID = traceSteps[r.H.StaticKind], uint64(r.Id)
	e.Stack = b.stacks.Stack(r.H.Stack)
	mesh := r.Device
	if address, ok := b.impls[mesh]; ok {
		mesh = address
	}
	e.Devices = b.chips(mesh)
	b.process.Emit(e)
}

// fitsProgram reports whether the program of an event is known or may be.
func (b *Books) fitsProgram(e *event.Event) bool {
	_, known := b.programs[e.ProgramID]
	return known || b.fits(quota.Program)
}

// hold notes that the program of an event has memory.
func (b *Books) hold(e *event.Event) {
	what := bpf.ProgramDFBs
	switch {
	case e.Kind == event.KernelLoad:
		what = bpf.ProgramKernels
	case e.StaticKind == event.CircularBuffer:
		what = bpf.ProgramCBs
	}
	g := b.programs[e.ProgramID]
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
	b.programs[e.ProgramID] = g
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

func (b *Books) programEnd(e *event.Event, _ *libraries.Library, r *bpf.KernelProgramEndRecord) {
	b.release(r.ProgramId, r.H.Flags)
	b.endProgram(*e, r.ProgramId, r.H.Flags)
}

// endProgram reports the memory that a program released.
func (b *Books) endProgram(e event.Event, id uint64, flags uint8) {
	g := b.programs[id]
	g.holds, g.timeNs = g.holds&^flags, e.TimeNs
	if flags&bpf.ProgramKernels != 0 {
		g.loaded = nil
	}
	if flags&bpf.ProgramDFBs != 0 {
		g.placed = nil
	}
	if b.programs[id] = g; g.holds == 0 {
		delete(b.programs, id)
	}
	e.ProgramID = id
	end := func(kind event.Kind, region event.Region, static event.StaticKind) {
		e.Kind, e.Region, e.StaticKind = kind, region, static
		b.process.Emit(&e)
	}
	switch cbs := flags & (bpf.ProgramCBs | bpf.ProgramDFBs); cbs {
	case bpf.ProgramCBs:
		end(event.CBFree, event.CB, event.CircularBuffer)
	case bpf.ProgramDFBs:
		end(event.CBFree, event.CB, event.DataflowBuffer)
	case bpf.ProgramCBs | bpf.ProgramDFBs:
		end(event.CBFree, event.CB, event.NotStatic)
	}
	if flags&bpf.ProgramKernels != 0 && !b.takeCompiled(id) {
		end(event.KernelUnload, event.Kernel, event.NotStatic)
	}
}

func (b *Books) kernelLoaded(e *event.Event, _ *libraries.Library, r *bpf.KernelKernelRecord) {
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	e.ProgramID, e.SizeBytes, e.BytesPerBank = r.ProgramId, r.BinaryBytes, r.TextBytes
	e.Stack = b.operationStack(e, r.H.Stack)
	e.Devices = b.chips(r.Device)
	b.takeCompiled(e.ProgramID)
	if r.H.Flags == bpf.KernelCompiled {
		if len(b.compiled) >= maxCompiled {
			delete(b.isCompiled, b.compiled[0].ProgramID)
			b.compiled = slices.Delete(b.compiled, 0, 1)
		}
		one := *e
		b.compiled = append(b.compiled, &one)
		b.isCompiled[e.ProgramID] = true
		return
	}
	e.KernelKind = event.KernelKind(r.H.Flags)
	b.loadKernels(*e)
}

// maxCompiled bounds the programs of a process that are compiled and not loaded.
const maxCompiled = 1 << 10

// takeCompiled removes a program from those that are not loaded, and reports whether it was one.
func (b *Books) takeCompiled(id uint64) bool {
	if !b.isCompiled[id] {
		return false
	}
	delete(b.isCompiled, id)
	b.compiled = slices.DeleteFunc(b.compiled, func(e *event.Event) bool { return e.ProgramID == id })
	return true
}

// loadKernels reports the kernels of a program, unless its chips have them: slow dispatch loads them
// at each run.
func (b *Books) loadKernels(e event.Event) {
	has := b.programs[e.ProgramID].loaded
	if len(has) > 0 && (slices.Equal(has, e.Devices) || hasAll(has, e.Devices)) {
		return
	}
	if b.fitsProgram(&e) {
		b.process.Emit(&e)
		b.hold(&e)
	}
}

// hasAll reports whether a list has all chips of another one. Both may be long.
func hasAll(list, chips []int) bool {
	has := make(map[int]bool, len(list))
	for _, chip := range list {
		has[chip] = true
	}
	return !slices.ContainsFunc(chips, func(chip int) bool { return !has[chip] })
}

// binariesLoaded reports the kernels of the programs that the thread compiled last.
func (b *Books) binariesLoaded(e *event.Event, _ *libraries.Library, h *bpf.KernelHeader) {
	var loaded []event.Event
	for i := len(b.compiled) - 1; i >= 0 && len(loaded) < int(h.Count); i-- {
		if one := b.compiled[i]; one.TID == e.TID {
			one.TimeNs = e.TimeNs
			loaded = append(loaded, *one)
			delete(b.isCompiled, one.ProgramID)
			b.compiled = slices.Delete(b.compiled, i, i+1)
		}
	}
	for _, one := range slices.Backward(loaded) {
		b.loadKernels(one)
	}
}

// runtimeKernels reports the kernels of command queues and of the fabric that were read from a
// process's memory. Without a record of their end, they end with their device.
func (b *Books) runtimeKernels(e event.Event, devices []heap.Device) {
	e.Kind, e.Region = event.KernelLoad, event.Kernel
	for _, dev := range devices {
		if dev.Allocator != 0 && b.allocators[dev.Allocator] == nil {
			continue // a fork: it is its parent's
		}
		for _, r := range dev.Runtime {
			if b.programs[r.ID].holds&bpf.ProgramKernels != 0 {
				continue
			}
			e.ProgramID, e.KernelKind, e.BytesPerBank, e.Devices = r.ID, r.Kind, r.TextBytes, []int{r.Chip}
			b.loadKernels(e)
			g := b.programs[r.ID]
			g.unended = true
			b.programs[r.ID] = g
		}
	}
}

// endRuntimeKernels reports the end of kernels on chips on which the process has no device any more,
// if no record will.
func (b *Books) endRuntimeKernels(e event.Event) {
	open := func(chip int) bool {
		for _, a := range b.allocators {
			if slices.Contains(a.device.chips, chip) {
				return true
			}
		}
		return false
	}
	for id, g := range b.programs {
		if g.unended && !slices.ContainsFunc(g.loaded, open) {
			e.Devices = g.loaded
			b.endProgram(e, id, bpf.ProgramKernels)
		}
	}
}

// static reports a range of L1 that was read from a program.
func (b *Books) static(e event.Event, s heap.Static) {
	e.Kind, e.Region, e.StaticKind, e.BytesPerBank = event.CBAlloc, event.CB, s.Kind, 0
	e.Address, e.SizeBytes, e.Cores, e.Global = s.Address, s.Bytes, s.Cores, s.Global
	if b.fitsProgram(&e) {
		b.process.Emit(&e)
		b.hold(&e)
	}
}

// programSeen reports the memory of a program that was compiled before the attach.
func (b *Books) programSeen(e *event.Event, l *libraries.Library, r *bpf.KernelProgramSeenRecord) {
	if l == nil {
		b.process.Lost(unknownLibrary)
		return
	}
	if known := b.programs[r.ProgramId]; known.holds != 0 { // a repeated report, after a loss
		b.release(r.ProgramId, known.holds)
		b.endProgram(*e, r.ProgramId, known.holds)
	}
	e.ProgramID, e.BeforeAttach = r.ProgramId, true
	flags, device := r.H.Flags, r.Device // the record is overwritten by the next one
	b.readProgram(*e, l, r.Impl, flags, func(e event.Event, holds uint8, program *heap.Program) {
		local := func(s heap.Static) bool { return !s.Global }
		if flags == bpf.ProgramCBs && !slices.ContainsFunc(program.Statics, local) {
			return // it has only buffers in tensors, which allocate nothing: it may be compiled next
		}
		e.Devices = b.chips(device)
		for _, s := range program.Statics {
			kind := bpf.ProgramDFBs
			if s.Kind == event.CircularBuffer {
				kind = bpf.ProgramCBs
			}
			if holds&kind != 0 { // else an event has reported a newer place
				b.static(e, s)
			}
		}
		if holds&bpf.ProgramKernels != 0 {
			e.Kind, e.Region = event.KernelLoad, event.Kernel
			e.SizeBytes, e.BytesPerBank = program.BinaryBytes, program.TextBytes
			b.loadKernels(e)
		}
	})
}

// programRead is a program that is being read.
type programRead struct {
	holds uint8 // flags of the memory to report; cleared if it is released meanwhile
}

// Causes of losses of programs that existed before the attach.
const (
	ProgramUnread = "program not readable"
	ProgramGone   = "program released its memory before it was read"
)

// readProgram reads the program of an event, and calls report with the flags of the memory that
// the program still has. It may have been destroyed since the record was sent.
func (b *Books) readProgram(e event.Event, l *libraries.Library, impl uint64, holds uint8, report func(event.Event, uint8, *heap.Program)) {
	r := &programRead{holds}
	added := b.process.Read(e.TimeNs, func(ctx context.Context, of host.ReadableProcess) func() {
		program, err := l.ReadProgram(ctx, of, impl)
		gone := err == nil && program.ID != e.ProgramID || err != nil && of.HasNoMemory()
		return func() {
			b.forget(e.ProgramID, r)
			switch {
			case gone || r.holds == 0:
				b.process.Lost(ProgramGone)
			case err != nil:
				b.process.Lost(ProgramUnread)
			default:
				report(e, r.holds, &program)
			}
		}
	})
	if added {
		b.unread[e.ProgramID] = append(b.unread[e.ProgramID], r)
	} else {
		b.process.Lost(ProgramUnread)
	}
}

func (b *Books) forget(program uint64, r *programRead) {
	list := slices.DeleteFunc(b.unread[program], func(other *programRead) bool { return other == r })
	if b.unread[program] = list; len(list) == 0 {
		delete(b.unread, program)
	}
}

// release notes the memory that a program releases while it is being read.
func (b *Books) release(program uint64, flags uint8) {
	for _, r := range b.unread[program] {
		r.holds &^= flags
	}
}

// earlyUnread is the cause of losses of allocations that no reading of the process's memory reported.
const earlyUnread = "allocated before all probes were in place"

// EndReads counts what was still to be read when the process or tracing ends.
func (b *Books) EndReads(cause string) {
	for _, list := range b.unread {
		for range list {
			b.process.Lost(cause)
		}
	}
	clear(b.unread)
	if b.Missed && len(b.devices) == 0 {
		b.early++
	}
	for b.Missed = false; b.early > 0; b.early-- {
		b.process.Lost(earlyUnread)
	}
}
