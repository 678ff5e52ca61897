package tracer

// After a late attach, this file has the existing buffers of a process read from its memory.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ttmem/tracer/books"
	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

// lateAttach is the state of a process while its memory is being read.
type lateAttach struct {
	changes *books.Changes
	stop    context.CancelCauseFunc
}

var errTooBusy = errors.New("it frees buffers faster than its memory can be read")

// lateResult is the result of reading a part of a process's memory.
type lateResult struct {
	last    bool   // reading has finished or failed
	readNs  uint64 // when the reading ended
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
	if p.recovery != nil {
		p.recovery.sinceNs = 0 // events are followed for this reading from now on
	}
	p.late = &lateAttach{p.Follow(), func(error) {}}
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
	p.Unfollow()
	d.inbox.late.Add(-1)
}

// maxTaken is the number of buffers that are reported together, while other events wait.
const maxTaken = 1 << 14

// takeLate reports a result. It returns false if the result has to wait: for those of the parent, or
// because maxTaken buffers were reported.
func (d *decoder) takeLate(p *process, r *lateResult) bool {
	if parent := d.processes[p.parent]; parent != nil && parent.late != nil || d.taken >= maxTaken {
		return false
	}
	if p.late.changes.Full() { // a read buffer may have been freed
		p.late.stop(errTooBusy)
		if r.err = cmp.Or(r.err, errTooBusy); !r.last {
			return true
		}
	}
	d.taken += len(r.buffers)
	// changes up to the newest record are applied; later ones are reported as events
	atNs := max(d.newest, r.readNs, d.queue.released)
	p.AddExisting(event.Event{TimeNs: atNs, PID: p.PID, TID: p.PID}, r.devices, r.buffers)
	if r.last {
		d.endLate(p)
	}
	if r.err != nil && !errors.Is(r.err, context.Canceled) && d.kernel.Runs(p.Program) {
		d.warn(fmt.Sprintf("process %d: its existing buffers were not read completely: %v", p.PID, r.err))
		d.lose(p, lateUnread, 1, atNs)
	}
	if r.last && d.Owners {
		d.searches.WantLate(p.owners)
	}
	return true
}
