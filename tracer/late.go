package tracer

// After a late attach, this file reads the existing buffers of a process from its memory, and
// reconciles them with the events that come meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

// lateAttach is the state of a process while its memory is being read. Frees that happen
// meanwhile are recorded here, because the buffer may have been read before.
type lateAttach struct {
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
	last bool // reading has finished or failed
	// readNs is when the reading ended, and atNs the time with which it is reported.
	readNs  uint64
	atNs    uint64
	devices []heap.Device
	buffers []heap.Buffer
	err     error
}

// lateUnread is the cause of a loss where memory cannot be read.
const lateUnread = "memory from before the attach not read"

// maxReads bounds the processes of a user that are read at the same time: each takes some
// 20 MB.
const maxReads = 4

// turns limit how many processes of a user are read at the same time. Any goroutine may end one.
type turns struct {
	mu      sync.Mutex
	running map[int]int // by user
}

// begin reports whether another process of a user may be read, until end is called.
func (t *turns) begin(user, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[user] >= most {
		return false
	}
	if t.running == nil {
		t.running = make(map[int]int)
	}
	t.running[user]++
	return true
}

func (t *turns) end(user int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[user]--; t.running[user] == 0 {
		delete(t.running, user)
	}
}

// attachLate has the existing buffers of a process read, as soon as it is its turn. Its probes are in
// place.
func (d *decoder) attachLate(p *process) {
	p.late = &lateAttach{freed: make(map[uint64]bool), cleared: make(map[uint64]bool), stop: func(error) {}}
	d.waiting = append(d.waiting, p)
}

// beginLate begins to read the processes for which there is room, in the background: Close does not
// wait for it.
func (d *decoder) beginLate() {
	d.waiting = slices.DeleteFunc(d.waiting, func(p *process) bool {
		if p.late == nil { // it has ended
			return true
		}
		user := p.user
		if !d.late.begin(user, maxReads) {
			return false
		}
		ctx, stop := context.WithCancelCause(d.closing)
		p.late.stop = stop
		program, l, bias := p.Program, p.library, p.bias()
		go func() {
			defer d.late.end(user)
			defer stop(nil)
			give := func(r *lateResult) {
				r.readNs = host.Now()
				d.inbox.add(result{program, r.readNs, func(d *decoder) bool { return d.takeLate(d.processes[program.PID], r) }})
			}
			err := l.Read(ctx, d.reads.readers.Of(program.PID), bias, func(dev heap.Device, buffers []heap.Buffer) {
				give(&lateResult{devices: []heap.Device{dev}, buffers: buffers})
			})
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			give(&lateResult{last: true, err: err})
		}()
		return true
	})
}

// bias returns the difference between addresses in the library and in the process.
func (p *process) bias() uint64 { return p.library.Bias(p.mapped.Start, p.mapped.Offset) }

// endLate stops waiting for a process's memory.
func (d *decoder) endLate(p *process) {
	p.late = nil
	d.inbox.late.Add(-1)
}

// maxTaken is the number of buffers that are reported together, while other events wait.
const maxTaken = 1 << 14

// takeLate reports a result. It returns false if the result has to wait: for those of the parent, or
// because maxTaken buffers were reported.
func (d *decoder) takeLate(p *process, r *lateResult) bool {
	late := p.late
	if parent := d.processes[p.parent]; parent != nil && parent.late != nil || d.taken >= maxTaken {
		return false
	}
	if !r.last && len(late.freed) >= maxFreed { // a read buffer may have been freed
		return true
	}
	d.taken += len(r.buffers)
	d.lateResult(p, r)
	if r.last {
		d.endLate(p)
	}
	if r.err != nil && !errors.Is(r.err, context.Canceled) && d.kernel.Runs(p.Program) {
		d.warn(fmt.Sprintf("process %d: its existing buffers were not read completely: %v", p.PID, r.err))
		d.lose(p, lateUnread, 1, r.atNs)
	}
	if r.last && d.Owners {
		d.wantLate(p)
	}
	return true
}

// lateResult reports the devices and buffers that were read from a process's memory.
func (d *decoder) lateResult(p *process, r *lateResult) {
	// frees up to the newest record are applied; later ones are reported as events
	r.atNs = max(d.newest, r.readNs, d.queue.released)
	p.lateNs = r.atNs
	if p.readIDs == nil {
		p.readIDs = make(map[uint64]uint64)
	}
	for i := range r.buffers {
		p.readIDs[r.buffers[i].Object] = r.buffers[i].ID
	}
	e := event.Event{TimeNs: r.atNs, PID: p.PID, TID: p.PID, BeforeAttach: true}
	d.addRead(p, e, r.devices, r.buffers, p.late.freed, p.late.cleared)
	d.runtimeKernels(p, e, r.devices)
}

// addRead reports unknown devices and buffers that were read from a process's memory, except
// those that later events are about. e says how they were found.
func (d *decoder) addRead(p *process, e event.Event, devices []heap.Device, buffers []heap.Buffer, changed, cleared map[uint64]bool) {
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
		d.start(p, &e)
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
		d.start(p, &e)
		alloc := b.Event()
		alloc.TimeNs, alloc.PID, alloc.TID, alloc.Comm = e.TimeNs, e.PID, e.TID, e.Comm
		alloc.Devices, alloc.BeforeAttach, alloc.Reread = a.device.chips, e.BeforeAttach, e.Reread
		if own := p.devices[b.Device]; own != nil {
			alloc.Devices = own.chips // a submesh has fewer chips than its allocator
		}
		if !d.fits(p, 1) {
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
func (d *decoder) ancestors(p *process) iter.Seq[*process] {
	return func(yield func(*process) bool) {
		for range maxAncestors {
			if p = d.processes[p.parent]; p == nil || !yield(p) {
				return
			}
		}
	}
}

func (d *decoder) ancestorHas(p *process, allocator uint64) bool {
	for a := range d.ancestors(p) {
		if a.allocators[allocator] != nil {
			return true
		}
	}
	return false
}

// holds reports whether a process has buffers in an allocator that no ancestor has.
func (d *decoder) holds(p *process, buffers []heap.Buffer, allocator uint64) bool {
	return slices.ContainsFunc(buffers, func(b heap.Buffer) bool {
		return b.Allocator == allocator && !d.inherited(p, &b)
	})
}

// inherited reports whether a Buffer is a copy of an ancestor's Buffer: a fork copies the
// object, but not the device memory.
func (d *decoder) inherited(p *process, b *heap.Buffer) bool {
	if p.forked && (p.firstID == 0 || b.ID < p.firstID) {
		return true // ids ascend
	}
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
