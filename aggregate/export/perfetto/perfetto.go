// Package perfetto writes a recording as a trace for https://ui.perfetto.dev: a counter for each
// region of each chip, a slice for each buffer and program with its call stack, and the memory by
// call stack at the peaks, the marks and the end.
//
// It writes as events come, and keeps in memory what is live and every call stack once. An event takes
// some 60 bytes. Packets are not in order of time, which viewers do not need.
// It is not part of ttmem's Go library: it changes without notice.
package perfetto

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Options for a trace. The zero value is usable.
type Options struct {
	// Wall returns the wall clock, in ns since 1970, at a time of an event; nil if it is not known.
	Wall func(ns uint64) int64
	// Peaks are the moments of peaks, at which there is memory by call stack.
	Peaks []memory.PeakPoint
	// StepNs is the shortest time between two values of a counter, except for its highest value in
	// between; 0 has all values.
	StepNs uint64
}

// A Writer writes a trace. Its events have to be applied to a State with KeepSites.
type Writer struct {
	o        Options
	out      *bufio.Writer
	err      error
	interned interner
	classes  name.Classes
	// scratch are messages that are written at once, from the file down to an annotation.
	scratch [4]message
	// tracks is the number of tracks so far, which are numbered from 1.
	tracks    uint64
	groups    map[groupKey]*group
	processes map[int]uint64
	chips     map[int]*chip
	buffers   map[objectKey]buffer
	programs  map[objectKey]*program
	// compiled is the program of each process whose circular buffers are being allocated.
	compiled map[int]*program
	state    *aggregate.State
	heap     heap
}

// An objectKey identifies a buffer or a program of a process.
type objectKey struct {
	pid int
	id  uint64
}

// A buffer is live. Its slice is written when it ends, because its owner may be found late.
type buffer struct {
	slice
	region                                   event.Region
	timeNs, id, address, bytes, bytesPerBank uint64
	stack                                    *event.Stack
	owner                                    memory.Owner
}

// A program has slices for its circular buffers and kernels: several if it got more of them later.
type program struct {
	objectKey
	slices []slice
	// bytes are those of all slices, and begun is the slice that is not written yet.
	bytes uint64
	begun struct {
		slice
		timeNs, bytes uint64
		stack         *event.Stack
	}
}

// New begins a trace.
func New(out io.Writer, o Options) *Writer {
	w := &Writer{
		o: o, out: bufio.NewWriterSize(out, 1<<20), interned: newInterner(), groups: make(map[groupKey]*group),
		processes: make(map[int]uint64), chips: make(map[int]*chip), buffers: make(map[objectKey]buffer),
		programs: make(map[objectKey]*program), compiled: make(map[int]*program),
	}
	w.heap.begin(o.Peaks)
	return w
}

// Event writes an event that was applied to the state.
func (w *Writer) Event(e *event.Event, s *aggregate.State) {
	if w.state == nil {
		w.state = s
		s.OnRun(w.Ran)
		w.begin(e.TimeNs)
	}
	switch e.Kind {
	case event.Checkpoint:
		w.addExisting()
	case event.ProcessStart:
		w.process(e.PID, e.Comm, e.Started().Command)
	case event.ProcessExit: // another one may get the id
		delete(w.processes, e.PID)
		maps.DeleteFunc(w.groups, func(key groupKey, _ *group) bool { return key.pid == e.PID })
	case event.Alloc:
		w.alloc(e)
	case event.Free:
		key := objectKey{e.PID, e.BufferID}
		if one, ok := w.buffers[key]; ok {
			delete(w.buffers, key)
			w.writeBuffer(&one)
			w.end(one.slice, e.TimeNs)
			for _, id := range e.Devices {
				w.countRegion(e.TimeNs, id, one.region)
			}
		}
	case event.Owner:
		w.own(e.PID, e.BufferID, memory.Owner{Path: e.Cause, Tensor: e.Message})
	case event.CBAlloc, event.KernelLoad:
		w.compile(e)
	case event.CBFree, event.KernelUnload:
		w.endProgram(objectKey{e.PID, e.ProgramID}, e.TimeNs)
	case event.AllocFailed, event.OperationFailed:
		message, _, _ := strings.Cut(event.Info(e.Message), "\n") // without the backtrace
		track := "failed allocations"
		if e.Kind == event.OperationFailed {
			track = "failed operations"
		}
		w.instant(w.track(e.PID, track), e.TimeNs, e.Stack, cmp.Or(message, "failed allocation"), e.SizeBytes)
	case event.TraceBegin, event.TraceEnd, event.TraceReplay, event.TraceRelease:
		w.instant(w.track(e.PID, "captured traces"), e.TimeNs, e.Stack, strings.ReplaceAll(e.Kind.String(), "_", " ")+fmt.Sprintf(" %d", e.ProgramID), 0)
	case event.Mark:
		w.instant(w.track(e.PID, "marks"), e.TimeNs, nil, e.Cause, 0)
	case event.Lost:
		w.instant(w.track(e.PID, "events lost"), e.TimeNs, nil, fmt.Sprintf("%d: %s", e.Count, e.Cause), 0)
	}
	w.count(e)
	w.heap.after(w, e)
}

// Close writes the rest of the trace. What is live has no end.
func (w *Writer) Close() error {
	if w.state != nil {
		for _, p := range w.compiled {
			w.writeProgram(p)
		}
		for _, b := range slices.SortedFunc(maps.Values(w.buffers), func(a, b buffer) int {
			return cmp.Or(cmp.Compare(a.timeNs, b.timeNs), cmp.Compare(a.track, b.track))
		}) {
			w.writeBuffer(&b)
		}
		for _, c := range w.chips {
			for _, l := range c.counters {
				if l != nil {
					l.flush(w)
				}
			}
		}
		w.heap.write(w, w.state.Now())
	}
	return cmp.Or(w.err, w.out.Flush())
}

// addExisting begins slices for what is live at a checkpoint.
func (w *Writer) addExisting() {
	for _, b := range w.state.Buffers() {
		w.alloc(&event.Event{
			Kind: event.Alloc, TimeNs: b.SinceNs, PID: b.PID, Comm: b.Comm, Devices: b.Devices, Region: b.Region, BufferID: b.BufferID,
			Address: b.Address, SizeBytes: b.SizeBytes, BytesPerBank: b.BytesPerBank, Banks: uint32(b.Banks), Stack: b.Stack,
		})
		w.own(b.PID, b.BufferID, b.Owner)
	}
	snap := w.state.Snapshot()
	for i := range snap.Processes {
		p := &snap.Processes[i]
		w.process(p.PID, p.Comm, p.Command)
	}
	for _, id := range snap.DeviceIDs() {
		for _, b := range w.state.Statics(id) {
			w.compile(&event.Event{Kind: event.CBAlloc, TimeNs: b.SinceNs, PID: b.PID, ProgramID: b.ProgramID, Devices: []int{id}, Stack: b.Stack})
		}
		w.countChip(w.state.Now(), id)
	}
}

// alloc begins the life of a buffer.
func (w *Writer) alloc(e *event.Event) {
	key := objectKey{e.PID, e.BufferID}
	if old, ok := w.buffers[key]; ok { // its free was lost
		w.writeBuffer(&old)
		w.end(old.slice, e.TimeNs)
		for id := range w.chips {
			w.countChip(e.TimeNs, id)
		}
	}
	w.buffers[key] = buffer{
		slice: w.lane(e, e.Region.String()), region: e.Region, timeNs: e.TimeNs, id: e.BufferID, address: e.Address,
		bytes: e.BytesPerBank * uint64(w.state.Banks(e)) * uint64(len(e.Devices)), bytesPerBank: e.BytesPerBank, stack: e.Stack,
	}
}

// own sets the owner of a live buffer. Losing its owner does not change the buffer's history.
func (w *Writer) own(pid int, id uint64, owner memory.Owner) {
	key := objectKey{pid, id}
	if b, live := w.buffers[key]; live && owner.Path != "" {
		b.owner = owner
		w.buffers[key] = b
	}
}

// writeBuffer writes the beginning of a buffer's slice.
func (w *Writer) writeBuffer(b *buffer) {
	w.beginSlice(b.slice, b.timeNs, b.stack, "buffer", b.bytes,
		annotation{name: "bytes", value: b.bytes}, annotation{name: "buffer", value: b.id}, annotation{name: "address", value: b.address, hex: true},
		annotation{name: "bytes per bank", value: b.bytesPerBank},
		annotation{name: "class", text: w.classes.Of(b.stack, b.region, b.owner.Path, b.owner.Tensor).String()}, annotation{name: "held by", text: b.owner.Path}, annotation{name: "tensor", text: b.owner.Tensor})
}

// compile notes the circular buffers or kernels of a program: its slice is written when all are
// known, with the time of the first.
func (w *Writer) compile(e *event.Event) {
	key := objectKey{e.PID, e.ProgramID}
	p := w.programs[key]
	if p == nil {
		p = &program{objectKey: key}
		w.programs[key] = p
	}
	if other := w.compiled[e.PID]; other != p {
		w.writeProgram(other)
		p.begun.slice, p.begun.timeNs, p.begun.stack = w.lane(e, "programs"), e.TimeNs, e.Stack
		w.compiled[e.PID] = p
	}
	bytes, _ := w.state.Program(e.PID, e.ProgramID)
	p.begun.bytes = bytes - min(bytes, p.bytes)
	if p.begun.stack == nil {
		p.begun.stack = e.Stack
	}
}

// writeProgram writes the begun slice of a program; nil has none.
func (w *Writer) writeProgram(p *program) {
	if p == nil {
		return
	}
	delete(w.compiled, p.pid)
	b := &p.begun
	w.beginSlice(b.slice, b.timeNs, b.stack, "program", b.bytes, annotation{name: "bytes", value: b.bytes}, annotation{name: "program", value: p.id})
	p.slices, p.bytes = append(p.slices, b.slice), p.bytes+b.bytes
}

// endProgram ends the slices of a program that has nothing any more.
func (w *Writer) endProgram(key objectKey, ns uint64) {
	p := w.programs[key]
	if p == nil {
		return
	}
	if w.compiled[key.pid] == p {
		w.writeProgram(p)
	}
	if _, live := w.state.Program(key.pid, key.id); live {
		return
	}
	delete(w.programs, key)
	for _, one := range slices.Backward(p.slices) {
		w.end(one, ns)
	}
}
