package tracer

// This file has what a process held before it was attached read from its memory,
// and reconciles that with what it did meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// lateAttach is a process that runs while what it held is read. What it gives back
// meanwhile is not to be told of: it may have been read before.
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
	// readNs is when the last of it was read, and atNs when it is told of.
	readNs  uint64
	atNs    uint64
	devices []lateDevice
	buffers []lateBuffer
	err     error
}

// bias is what addresses in a library's file are moved by in a process that maps its
// code there.
func (l *library) bias(start, offset uint64) uint64 {
	for _, p := range l.layout.Probes {
		if p.Found {
			// all probes lie in code, which is mapped as a whole
			return start - offset + p.FileOffset - p.ProbeAddr
		}
	}
	return 0
}

// lateUnread is the cause of what is lost where memory cannot be read.
const lateUnread = "memory from before the attach not read"

// markLate has the kernel side tell of programs that a process compiled before.
func (t *Tracer) markLate(pid int) {
	if t.spaces != nil {
		t.spaces.listing.Lock()
		defer t.spaces.listing.Unlock()
	}
	var p bpf.KernelProcess
	if t.objs.Processes.Lookup(uint32(pid), &p) == nil {
		p.Flags |= processLate
		_ = t.objs.Processes.Update(uint32(pid), &p, ebpf.UpdateExist) // or it has ended
	}
}

// attachLate has what a process held read, in the background; its probes are placed,
// and t.mu is held.
func (t *Tracer) attachLate(l *library, m mapping) {
	ctx, stop := context.WithCancelCause(t.closing)
	late := &lateAttach{sinceNs: now(), freed: make(map[uint64]bool), cleared: make(map[uint64]bool), stop: stop}
	t.late[m.pid] = late
	t.latePending.Add(1)
	t.watching.Go(func() {
		r := lateResult{pid: m.pid, parent: parentOf(m.pid), library: l, late: late}
		give := func(r lateResult) {
			r.readNs = now()
			t.mu.Lock()
			t.lateResults = append(t.lateResults, r)
			t.mu.Unlock()
		}
		defer stop(nil)
		err := l.readLate(ctx, m.pid, l.bias(m.start, m.offset), func(d lateDevice, buffers []lateBuffer) {
			r.devices, r.buffers = []lateDevice{d}, buffers
			give(r)
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		give(lateResult{last: true, pid: m.pid, parent: r.parent, library: l, late: late, err: err})
	})
}

// Reading reports whether what processes held before they were attached is still
// read; where it is not, handle was given all of it, or is when Run ends.
func (t *Tracer) Reading() bool { return t.latePending.Load() > 0 }

// lateOf is what is kept of a process while what it held is read; nil for others.
func (t *Tracer) lateOf(pid int) *lateAttach {
	if t.latePending.Load() == 0 {
		return nil // which is so nearly always
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late[pid]
}

// forgetLate ends that a process's memory is waited for; t.mu is held.
func (t *Tracer) forgetLate(pid int) {
	if t.late[pid] != nil {
		delete(t.late, pid)
		t.latePending.Add(-1)
	}
}

// takeLate tells of what was read from processes up to a time until which all that
// happened is decoded.
func (t *Tracer) takeLate(until uint64) {
	t.mu.Lock()
	list := t.lateResults
	t.lateResults = nil
	t.mu.Unlock()
	var waiting []lateResult
	held := make(map[int]bool) // a process's results stay in their order
	for _, r := range list {
		t.mu.Lock()
		same := t.late[r.pid] == r.late // or it has ended, or is another program by now
		wait := same && (held[r.pid] || r.readNs > until || t.late[r.parent] != nil)
		held[r.pid] = held[r.pid] || wait
		if same && !wait && r.last {
			t.forgetLate(r.pid)
		}
		t.mu.Unlock()
		switch {
		case wait:
			waiting = append(waiting, r)
			continue
		case !same || !r.last && len(r.late.freed) >= maxFreed: // it may have been freed
			continue
		}
		// what was freed up to the newest record is known, and what is so later is told
		r.atNs = max(t.decoder.newest, r.readNs, t.queue.released)
		t.decoder.lateResult(&r)
		if r.err != nil && !errors.Is(r.err, context.Canceled) && isRunning(r.pid) {
			t.warn(fmt.Sprintf("process %d: what it had allocated before is not counted, or not all of it: %v", r.pid, r.err))
			t.queue.push(event.Event{
				Kind: event.Lost, TimeNs: r.atNs, PID: r.pid, Count: 1, Cause: lateUnread,
			})
		}
	}
	t.mu.Lock()
	t.lateResults = append(waiting, t.lateResults...)
	t.mu.Unlock()
}

// endLate tells of what was still to be read when tracing ended.
func (t *Tracer) endLate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid := range t.late {
		t.queue.push(event.Event{Kind: event.Lost, TimeNs: now(), PID: pid, Count: 1, Cause: lateUnread})
	}
}

// lateResult tells of what a process had before.
func (d *decoder) lateResult(r *lateResult) {
	p, late := d.process(r.pid), r.late
	e := event.Event{TimeNs: r.atNs, PID: r.pid, TID: r.pid}
	p.parent, p.lateNs = r.parent, r.atNs
	if p.found == nil {
		p.found = make(map[uint64]uint64)
	}
	for _, found := range r.devices {
		if p.devices[found.address] == nil {
			p.devices[found.address] = &device{chips: found.chips, mesh: found.mesh}
		}
		if found.allocator == 0 || p.allocators[found.allocator] != nil || late.cleared[found.allocator] {
			continue
		}
		if d.ancestorHas(p, found.allocator) && !d.holds(p, r.buffers, found.allocator) {
			continue // the process is a fork: the device is its parent's
		}
		p.allocators[found.allocator] = &allocator{device: p.devices[found.address], banks: found.banks}
		d.start(&e, r.library)
		d.openDevice(e, found.allocator, p.allocators[found.allocator], true)
	}
	for i := range r.buffers {
		b := &r.buffers[i]
		p.found[b.object] = b.id
		_, known := p.live[b.object]
		if known || late.freed[b.object] || late.cleared[b.allocator] || d.inherited(p, b) {
			continue
		}
		a := p.allocators[b.allocator]
		if a == nil {
			continue
		}
		d.start(&e, r.library)
		p.live[b.object] = liveBuffer{b.id, b.allocator, r.atNs}
		found := b.event
		found.TimeNs, found.Kind, found.PID, found.TID, found.Comm = e.TimeNs, event.Alloc, e.PID, e.TID, e.Comm
		found.Object, found.BufferID, found.Allocator = b.object, b.id, b.allocator
		found.Devices, found.BeforeAttach = a.device.chips, true
		if own := p.devices[b.device]; own != nil {
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
func (d *decoder) holds(p *traced, buffers []lateBuffer, allocator uint64) bool {
	return slices.ContainsFunc(buffers, func(b lateBuffer) bool {
		return b.allocator == allocator && !d.inherited(p, &b)
	})
}

// inherited reports whether a Buffer is a copy of an ancestor's: a fork copies memory,
// and no device's.
func (d *decoder) inherited(p *traced, b *lateBuffer) bool {
	for a := range d.ancestors(p) {
		if id, ok := a.found[b.object]; ok && id == b.id {
			return true
		}
		if live, ok := a.live[b.object]; ok && live.id == b.id {
			return true
		}
	}
	return false
}

// parentOf is the parent of a process, 0 where that is not known.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, _ := strconv.Atoi(strings.TrimSpace(value))
			return parent
		}
	}
	return 0
}
