package tracer

// After a late attach, this file reads the existing buffers of a process from its memory, and
// reconciles them with the events that come meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/libraries"
)

// lateAttach is the state of a process while its memory is being read. Frees that happen
// meanwhile are recorded here, because the buffer may have been read before.
type lateAttach struct {
	// sinceNs is when all probes were in place. Earlier allocations are read from memory
	// even if a probe saw them: their free may have been missed.
	sinceNs uint64
	freed   map[uint64]bool // Buffers, by address
	cleared map[uint64]bool // allocators, by address
	stop    context.CancelCauseFunc
}

// maxFreed bounds how many frees are recorded while a process's memory is read.
const maxFreed = 1 << 20

var errTooBusy = errors.New("it frees buffers faster than its memory can be read")

func (l *lateAttach) free(object uint64) {
	if len(l.freed) >= maxFreed {
		l.stop(errTooBusy)
		return
	}
	l.freed[object] = true
}

// lateResult is the result of reading a part of a process's memory.
type lateResult struct {
	last        bool // reading has finished or failed
	pid, parent int
	library     *libraries.Library
	late        *lateAttach
	// readNs is when the reading ended, and atNs the time with which it is reported.
	readNs  uint64
	atNs    uint64
	devices []heap.Device
	buffers []heap.Buffer
	err     error
}

// lateUnread is the cause of a loss where memory cannot be read.
const lateUnread = "memory from before the attach not read"

// markLate lets the kernel side report programs that the process compiled before.
func (f *finder) markLate(pid int) {
	_, _ = f.objs.ChangeProcess(pid, func(p *bpf.KernelProcess) bool { // it may have ended
		p.Flags |= bpf.ProcessLate
		return true
	})
}

// lateAttaches are the processes whose memory is being read. Its methods need the finder's
// lock, except reading.
type lateAttaches struct {
	byPID   map[int]*lateAttach
	pending atomic.Int32          // len(byPID)
	turns   map[int]chan struct{} // by user; full while maxReads of their processes are being read
}

// maxReads bounds the processes of a user that are read at the same time: each takes some
// 20 MB.
const maxReads = 4

// reading reports whether a process is being read, or was read and is not reported yet.
func (l *lateAttaches) reading() bool { return l.pending.Load() > 0 }

// forget stops waiting for a process's memory.
func (l *lateAttaches) forget(pid int) {
	if l.byPID[pid] != nil {
		delete(l.byPID, pid)
		l.pending.Add(-1)
	}
}

// turn returns a channel that limits how many processes of a user are read: send before reading,
// receive afterwards.
func (f *finder) turn(uid int) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.late.turns == nil {
		f.late.turns = make(map[int]chan struct{})
	}
	if f.late.turns[uid] == nil {
		f.late.turns[uid] = make(chan struct{}, maxReads)
	}
	return f.late.turns[uid]
}

// attachLate reads the existing buffers of a process in the background. Its probes are in
// place, and f.mu is held.
func (f *finder) attachLate(l *libraries.Library, m host.NewMapping) {
	ctx, stop := context.WithCancelCause(f.closing)
	late := &lateAttach{sinceNs: host.Now(), freed: make(map[uint64]bool), cleared: make(map[uint64]bool), stop: stop}
	f.late.byPID[m.PID] = late
	f.late.pending.Add(1)
	go func() { // close does not wait for it
		turn := f.turn(host.RealUser(m.PID))
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
		}
		r := lateResult{pid: m.PID, parent: host.Parent(m.PID), library: l, late: late}
		give := func(r lateResult) {
			r.readNs = host.Now()
			f.inbox.add(found{r.readNs, func(d *decoder) bool { return f.takeLate(d, &r) }})
		}
		defer stop(nil)
		err := l.Read(ctx, f.reads.readers.Of(m.PID), l.Bias(m.Start, m.Offset), func(d heap.Device, buffers []heap.Buffer) {
			r.devices, r.buffers = []heap.Device{d}, buffers
			give(r)
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		give(lateResult{last: true, pid: m.PID, parent: r.parent, library: l, late: late, err: err})
	}()
}

// lateOf returns the state of a process whose memory is being read; nil for others.
func (f *finder) lateOf(pid int) *lateAttach {
	if !f.late.reading() {
		return nil // the usual case
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late.byPID[pid]
}

// maxTaken is the number of buffers that are reported together, while other events wait.
const maxTaken = 1 << 14

// takeLate reports a result. It returns false if the result has to wait: for those of the parent, or
// because maxTaken buffers were reported.
func (f *finder) takeLate(d *decoder, r *lateResult) bool {
	f.mu.Lock()
	same := f.late.byPID[r.pid] == r.late // else it has ended, or executed another program
	wait := same && (f.late.byPID[r.parent] != nil || d.taken >= maxTaken)
	if same && !wait && r.last {
		f.late.forget(r.pid)
	}
	f.mu.Unlock()
	if wait || !same || !r.last && len(r.late.freed) >= maxFreed { // past maxFreed, a read buffer may have been freed
		return !wait
	}
	d.taken += len(r.buffers)
	d.lateResult(r)
	if r.err != nil && !errors.Is(r.err, context.Canceled) && host.Running(r.pid) {
		f.warn(fmt.Sprintf("process %d: its existing buffers were not read completely: %v", r.pid, r.err))
		d.lose(r.pid, lateUnread, 1, r.atNs)
	}
	if r.last && f.owners {
		d.wantLate(r.pid)
	}
	return true
}

// lateResult reports the devices and buffers that were read from a process's memory.
func (d *decoder) lateResult(r *lateResult) {
	p, late := d.process(r.pid), r.late
	// frees up to the newest record are applied; later ones are reported as events
	r.atNs = max(d.newest, r.readNs, d.queue.released)
	e := event.Event{TimeNs: r.atNs, PID: r.pid, TID: r.pid}
	p.parent, p.lateNs = r.parent, r.atNs
	if p.readIDs == nil {
		p.readIDs = make(map[uint64]uint64)
	}
	for i := range r.buffers {
		p.readIDs[r.buffers[i].Object] = r.buffers[i].ID
	}
	e.BeforeAttach = true
	d.addRead(e, r.library, r.devices, r.buffers, late.freed, late.cleared)
	d.runtimeKernels(e, r.library, r.devices)
}

// addRead reports unknown devices and buffers that were read from a process's memory, except
// those that later events are about. e says how they were found.
func (d *decoder) addRead(e event.Event, lib *libraries.Library, devices []heap.Device, buffers []heap.Buffer, changed, cleared map[uint64]bool) {
	p := d.process(e.PID)
	for _, dev := range devices {
		if p.devices[dev.Address] == nil {
			p.addDevice(dev.Address, dev.Impl, &device{chips: dev.Chips, mesh: dev.Mesh})
		}
		if dev.Allocator == 0 || p.allocators[dev.Allocator] != nil || cleared[dev.Allocator] {
			continue
		}
		if d.ancestorHas(p, dev.Allocator) && !d.holds(p, buffers, dev.Allocator) {
			continue // the process is a fork, and the device is its parent's
		}
		p.allocators[dev.Allocator] = &allocator{device: p.devices[dev.Address], banks: dev.Banks}
		d.start(&e, lib)
		d.openDevice(e, dev.Allocator, p.allocators[dev.Allocator], e.BeforeAttach)
	}
	for i := range buffers {
		b := &buffers[i]
		_, known := p.live[b.Object]
		if known || changed[b.Object] || cleared[b.Allocator] || d.inherited(p, b) {
			continue
		}
		a := p.allocators[b.Allocator]
		if a == nil {
			continue
		}
		d.start(&e, lib)
		alloc := b.Event()
		alloc.TimeNs, alloc.PID, alloc.TID, alloc.Comm = e.TimeNs, e.PID, e.TID, e.Comm
		alloc.Devices, alloc.BeforeAttach, alloc.Reread = a.device.chips, e.BeforeAttach, e.Reread
		if own := p.devices[b.Device]; own != nil {
			alloc.Devices = own.chips // a submesh has fewer chips than its allocator
		}
		if !d.fits(e.PID, p, 1) {
			continue
		}
		p.live[b.Object] = liveBufferOf(&alloc)
		d.emit(alloc)
	}
}

// maxAncestors bounds how many generations of forks are followed back.
const maxAncestors = 16

// ancestors iterates over the processes that a process descends from and that were attached
// late.
func (d *decoder) ancestors(p *traced) iter.Seq[*traced] {
	return func(yield func(*traced) bool) {
		for range maxAncestors {
			if p = d.processes[p.parent]; p == nil || !yield(p) {
				return
			}
		}
	}
}

func (d *decoder) ancestorHas(p *traced, allocator uint64) bool {
	for a := range d.ancestors(p) {
		if a.allocators[allocator] != nil {
			return true
		}
	}
	return false
}

// holds reports whether a process has buffers in an allocator that no ancestor has.
func (d *decoder) holds(p *traced, buffers []heap.Buffer, allocator uint64) bool {
	return slices.ContainsFunc(buffers, func(b heap.Buffer) bool {
		return b.Allocator == allocator && !d.inherited(p, &b)
	})
}

// inherited reports whether a Buffer is a copy of an ancestor's Buffer: a fork copies the
// object, but not the device memory.
func (d *decoder) inherited(p *traced, b *heap.Buffer) bool {
	for a := range d.ancestors(p) {
		if id, ok := a.readIDs[b.Object]; ok && id == b.ID {
			return true
		}
		if live, ok := a.live[b.Object]; ok && live.id == b.ID {
			return true
		}
	}
	return false
}
