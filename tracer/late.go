package tracer

// This file has what a process held before it was attached read from its memory,
// and reconciles that with what it did meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

// lateAttach is a process that runs while what it held is read. What it gives back
// meanwhile is not reported: it may have been read before.
type lateAttach struct {
	// sinceNs is when all probes were placed. Before, an allocation may have been
	// seen whose end was not: it is read like those before it.
	sinceNs uint64
	freed   map[uint64]bool // Buffers, by address
	cleared map[uint64]bool // allocators, by address
	stop    context.CancelCauseFunc
}

// maxFreed bounds how much is remembered while a process's memory is read.
const maxFreed = 1 << 20

var errTooBusy = errors.New("it frees buffers faster than its memory can be read")

func (l *lateAttach) free(object uint64) {
	if len(l.freed) >= maxFreed {
		l.stop(errTooBusy)
		return
	}
	l.freed[object] = true
}

// lateResult is what was found in some of a process's memory.
type lateResult struct {
	last        bool // all was read, or as much as could be
	pid, parent int
	library     *library
	late        *lateAttach
	// readNs is when the last of it was read, and atNs when it is reported.
	readNs  uint64
	atNs    uint64
	devices []heap.Device
	buffers []heap.Buffer
	err     error
}

// lateUnread is the cause of what is lost where memory cannot be read.
const lateUnread = "memory from before the attach not read"

// markLate has the kernel side report programs that a process compiled before.
func (f *finder) markLate(pid int) {
	_, _ = f.objs.ChangeProcess(pid, func(p *bpf.KernelProcess) bool { // or it has ended
		p.Flags |= bpf.ProcessLate
		return true
	})
}

// lateAttaches are the processes whose memory is read. Its methods need a lock around
// them, but for reading.
type lateAttaches struct {
	byPID   map[int]*lateAttach
	pending atomic.Int32 // how many those are
	results []lateResult // of those that were read, for Run
}

// reading reports whether any process is read, or was and that is not reported yet.
func (l *lateAttaches) reading() bool { return l.pending.Load() > 0 }

// forget ends that a process's memory is waited for.
func (l *lateAttaches) forget(pid int) {
	if l.byPID[pid] != nil {
		delete(l.byPID, pid)
		l.pending.Add(-1)
	}
}

// attachLate has what a process held read, in the background; its probes are placed,
// and f.mu is held.
func (f *finder) attachLate(l *library, m host.NewMapping) {
	ctx, stop := context.WithCancelCause(f.closing)
	late := &lateAttach{sinceNs: host.Now(), freed: make(map[uint64]bool), cleared: make(map[uint64]bool), stop: stop}
	f.late.byPID[m.PID] = late
	f.late.pending.Add(1)
	f.working.Go(func() {
		r := lateResult{pid: m.PID, parent: host.Parent(m.PID), library: l, late: late}
		give := func(r lateResult) {
			r.readNs = host.Now()
			f.mu.Lock()
			f.late.results = append(f.late.results, r)
			f.mu.Unlock()
		}
		defer stop(nil)
		err := l.Read(ctx, m.PID, l.Bias(m.Start, m.Offset), func(d heap.Device, buffers []heap.Buffer) {
			r.devices, r.buffers = []heap.Device{d}, buffers
			give(r)
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		give(lateResult{last: true, pid: m.PID, parent: r.parent, library: l, late: late, err: err})
	})
}

// lateOf is what is kept of a process while what it held is read; nil for others.
func (f *finder) lateOf(pid int) *lateAttach {
	if !f.late.reading() {
		return nil // which is so nearly always
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late.byPID[pid]
}

// takeLate gives what was read from processes up to a time to report. What is newer waits.
func (f *finder) takeLate(until uint64, report func(*lateResult)) {
	f.mu.Lock()
	list := f.late.results
	f.late.results = nil
	f.mu.Unlock()
	var waiting []lateResult
	held := make(map[int]bool) // a process's results stay in their order
	for _, r := range list {
		f.mu.Lock()
		same := f.late.byPID[r.pid] == r.late // or it has ended, or is another program by now
		wait := same && (held[r.pid] || r.readNs > until || f.late.byPID[r.parent] != nil)
		held[r.pid] = held[r.pid] || wait
		if same && !wait && r.last {
			f.late.forget(r.pid)
		}
		f.mu.Unlock()
		switch {
		case wait:
			waiting = append(waiting, r)
		case same && (r.last || len(r.late.freed) < maxFreed): // or it may have been freed
			report(&r)
		}
	}
	f.mu.Lock()
	f.late.results = append(waiting, f.late.results...)
	f.mu.Unlock()
}

// unreadPIDs are the processes of which not all was read.
func (f *finder) unreadPIDs() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.late.byPID))
}

// takeLate reports what was read from processes up to a time until which all that
// happened is decoded.
func (t *Tracer) takeLate(until uint64) {
	t.finder.takeLate(until, func(r *lateResult) {
		// what was freed up to the newest record is known, and what is so later is reported
		r.atNs = max(t.decoder.newest, r.readNs, t.decoder.queue.released)
		t.decoder.lateResult(r)
		if r.err != nil && !errors.Is(r.err, context.Canceled) && host.Running(r.pid) {
			t.warn(fmt.Sprintf("process %d: what it had allocated before is not counted, or not all of it: %v", r.pid, r.err))
			t.decoder.emit(event.Event{
				Kind: event.Lost, TimeNs: r.atNs, PID: r.pid, Count: 1, Cause: lateUnread,
			})
		}
	})
}

// endLate reports what was still to be read when tracing ended.
func (t *Tracer) endLate() {
	for _, pid := range t.finder.unreadPIDs() {
		t.decoder.emit(event.Event{Kind: event.Lost, TimeNs: host.Now(), PID: pid, Count: 1, Cause: lateUnread})
	}
}

// lateResult reports what a process had before.
func (d *decoder) lateResult(r *lateResult) {
	p, late := d.process(r.pid), r.late
	e := event.Event{TimeNs: r.atNs, PID: r.pid, TID: r.pid}
	p.parent, p.lateNs = r.parent, r.atNs
	if p.found == nil {
		p.found = make(map[uint64]uint64)
	}
	for _, found := range r.devices {
		if p.devices[found.Address] == nil {
			p.devices[found.Address] = &device{chips: found.Chips, mesh: found.Mesh}
		}
		if found.Allocator == 0 || p.allocators[found.Allocator] != nil || late.cleared[found.Allocator] {
			continue
		}
		if d.ancestorHas(p, found.Allocator) && !d.holds(p, r.buffers, found.Allocator) {
			continue // the process is a fork: the device is its parent's
		}
		p.allocators[found.Allocator] = &allocator{device: p.devices[found.Address], banks: found.Banks}
		d.start(&e, r.library)
		d.openDevice(e, found.Allocator, p.allocators[found.Allocator], true)
	}
	for i := range r.buffers {
		b := &r.buffers[i]
		p.found[b.Object] = b.ID
		_, known := p.live[b.Object]
		if known || late.freed[b.Object] || late.cleared[b.Allocator] || d.inherited(p, b) {
			continue
		}
		a := p.allocators[b.Allocator]
		if a == nil {
			continue
		}
		d.start(&e, r.library)
		p.live[b.Object] = liveBuffer{b.ID, b.Allocator, r.atNs}
		found := b.Event
		found.TimeNs, found.Kind, found.PID, found.TID, found.Comm = e.TimeNs, event.Alloc, e.PID, e.TID, e.Comm
		found.Object, found.BufferID, found.Allocator = b.Object, b.ID, b.Allocator
		found.Devices, found.BeforeAttach = a.device.chips, true
		if own := p.devices[b.Device]; own != nil {
			found.Devices = own.chips // fewer than its allocator's, of a view of a mesh
		}
		d.emit(found)
	}
}

// maxAncestors bounds how far back a process's forks are followed.
const maxAncestors = 16

// ancestors gives what is known of the processes that a process descends from, as far
// as they were attached late.
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

// holds reports whether a process has buffers of an allocator that are no ancestor's.
func (d *decoder) holds(p *traced, buffers []heap.Buffer, allocator uint64) bool {
	return slices.ContainsFunc(buffers, func(b heap.Buffer) bool {
		return b.Allocator == allocator && !d.inherited(p, &b)
	})
}

// inherited reports whether a Buffer is a copy of an ancestor's: a fork copies memory,
// and no device's.
func (d *decoder) inherited(p *traced, b *heap.Buffer) bool {
	for a := range d.ancestors(p) {
		if id, ok := a.found[b.Object]; ok && id == b.ID {
			return true
		}
		if live, ok := a.live[b.Object]; ok && live.id == b.ID {
			return true
		}
	}
	return false
}
