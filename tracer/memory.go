package tracer

// This file has the memory of processes read: for what is there at a late attach, and for all after a loss.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/internal/find"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

const (
	// maxLate and maxRereading bound the processes of a user that are read at the same time after a late
	// attach, and after a loss: each takes some 20 MB.
	maxLate, maxRereading = 4, 1
	// maxTaken is the number of buffers that are reported together, while other events wait.
	maxTaken = 1 << 14
	// quietNs is how long events of a process are followed before its memory is read after a loss. If none
	// was lost in that time, they are right about the objects that they name.
	quietNs uint64 = 1e9
	// rereadNs is the time between two such readings of a process. Each one doubles it, up to
	// maxRereadNs, because a program can lose events on purpose.
	rereadNs    uint64 = 5e9
	maxRereadNs uint64 = 300e9
)

// lateUnread is the cause of a loss where memory cannot be read.
const lateUnread = "memory from before the attach not read"

var errTooBusy = errors.New("it frees buffers faster than its memory can be read")

// A memory is what was read of the memory of a process, or a part of that.
type memory struct {
	books.Reading
	last   bool   // reading has finished or failed
	readNs uint64 // when reading it ended
	err    error
}

// lateAttach is the state of a process while its memory from before the attach is being read.
type lateAttach struct {
	changes *books.Changes
	stop    context.CancelCauseFunc
}

// A recovery brings the figures of a process that lost events right again.
type recovery struct {
	programs bool   // events of programs may be lost too
	never    bool   // reading does not help
	sinceNs  uint64 // the time from which events are followed; 0: they are not
	// beganNs is when the reading that runs began, and stop stops it; nil: none runs.
	beganNs uint64
	stop    context.CancelCauseFunc
}

// scan reads the memory of a process, which counts in running, in the background. Close does not wait for it,
// because a read of memory may never return. take gets what read gives, unless the process has ended; false:
// it has to wait.
func (d *decoder) scan(p *process, running *quota.Quota, read func(ctx context.Context, of host.ReadableProcess, give func(memory)),
	take func(*process, *memory) bool,
) context.CancelCauseFunc {
	ctx, stop := context.WithCancelCause(d.closing)
	of, user := d.reads.readers.Of(p.PID), p.user // which may become another
	go func() {
		read(ctx, of, func(m memory) {
			m.readNs = host.Now()
			d.inbox.add(result{p, m.readNs, func(*decoder) bool { return take(p, &m) }})
		})
		stop(nil)
		d.inbox.add(result{report: func(*decoder) bool {
			running.Take(user, -1)
			return true
		}})
	}()
	return stop
}

// bias returns the difference between addresses in the library and in the process.
func (p *process) bias() uint64 { return p.library.Bias(p.mapped.Start, p.mapped.Offset) }

// attachLate has the existing buffers of a process read, as soon as it is its turn. Its probes are in
// place.
func (d *decoder) attachLate(p *process) {
	if p.recovery != nil {
		p.recovery.sinceNs = 0 // events are followed for this reading from now on
	}
	p.late = &lateAttach{p.Follow(), func(error) {}}
	d.waiting = append(d.waiting, p)
}

// beginLate begins to read the processes for which there is room.
func (d *decoder) beginLate() {
	d.waiting = slices.DeleteFunc(d.waiting, func(p *process) bool {
		if p.late == nil { // it has ended
			return true
		}
		if !d.late.Take(p.user, 1) {
			return false
		}
		l, bias := p.library, p.bias()
		p.late.stop = d.scan(p, d.late, func(ctx context.Context, of host.ReadableProcess, give func(memory)) {
			err := l.Read(ctx, of, bias, func(dev heap.Device, buffers []heap.Buffer) {
				give(memory{Reading: books.Reading{Devices: []heap.Device{dev}, Buffers: buffers}})
			})
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			give(memory{Reading: books.Reading{MadeNone: l.HasMadeNone(ctx, of, bias)}, last: true, err: err})
		}, d.takeLate)
		return true
	})
}

// endLate stops waiting for a process's memory.
func (d *decoder) endLate(p *process) {
	p.late = nil
	p.Unfollow()
	d.inbox.late.Add(-1)
}

// takeLate reports a part of a process's memory. It returns false if that has to wait: for those of the
// parent, or because maxTaken buffers were reported.
func (d *decoder) takeLate(p *process, m *memory) bool {
	if parent := d.processes[p.parent]; parent != nil && parent.late != nil || d.taken >= maxTaken {
		return false
	}
	if p.late.changes.Full() { // a read buffer may have been freed
		p.late.stop(errTooBusy)
		if m.err = cmp.Or(m.err, errTooBusy); !m.last {
			return true
		}
	}
	d.taken += len(m.Buffers)
	p.AddExisting(d.readEvent(p, m), &m.Reading)
	if m.last {
		d.endLate(p)
	}
	if m.err != nil && !errors.Is(m.err, context.Canceled) && d.kernel.Runs(p.Program) {
		d.warn(fmt.Sprintf("process %d: its existing buffers were not read completely: %v", p.PID, m.err))
		d.lose(p, lateUnread, 1, p.ReadNs)
	}
	if m.last && d.Owners {
		d.searches.WantLate(p.owners)
	}
	return true
}

// readEvent is what the events of a process that was read have in common. Changes up to the newest record
// were applied to what was read; later ones are reported as events.
func (d *decoder) readEvent(p *process, m *memory) event.Event {
	return event.Event{TimeNs: max(d.newest, m.readNs, d.queue.Released), PID: p.PID, TID: p.PID}
}

// recover schedules another reading of a process's memory after a loss.
func (d *decoder) recover(p *process, cause string) {
	r := p.recovery
	if r == nil {
		r = &recovery{}
		p.recovery = r
		d.recovering[p] = true
	}
	r.unfollow(p)
	r.never = r.never || books.Uncorrected(cause) || p.InheritsAll() ||
		cause == find.NotTraced || cause == find.TracedInPart || cause == kernel.Causes[bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES]
	r.programs = r.programs || cause != lateUnread && !books.OnlyBuffers(cause) &&
		cause != kernel.Causes[bpf.KernelLostCauseLOST_BUFFER_UNREADABLE] && cause != kernel.Causes[bpf.KernelLostCauseLOST_DEVICE_UNREADABLE]
}

// unfollow stops following events, unless a late attach does.
func (r *recovery) unfollow(p *process) {
	if r.sinceNs = 0; p.late == nil {
		p.Unfollow()
	}
}

// rereadAll begins to read the memory of processes. All records up to a time have been decoded.
func (d *decoder) rereadAll(until uint64) {
	for p := range d.recovering {
		switch r := p.recovery; {
		case r.never || r.stop != nil || p.late != nil:
		case r.sinceNs == 0:
			if until >= p.rereadNs {
				r.sinceNs = until
				p.Follow()
			}
		case until >= r.sinceNs+quietNs:
			d.beginReread(p, until)
		}
	}
}

func (d *decoder) beginReread(p *process, nowNs uint64) {
	if p.mapped == nil {
		d.locate(p.PID, p.user) // until the next time
	}
	r := p.recovery
	if p.mapped == nil || !d.rereading.Take(p.user, 1) {
		r.unfollow(p)
		p.rereadNs = nowNs + rereadNs
		return
	}
	p.rereadNs = nowNs + min(rereadNs<<p.rereads, maxRereadNs)
	p.rereads = min(p.rereads+1, 8)
	r.beganNs = host.Now()
	r.stop = d.reread(p)
}

// readAgain reads the live buffers of a process. If programs may be lost, the kernel side also reports the
// process's programs again when they run.
func (d *decoder) readAgain(p *process) context.CancelCauseFunc {
	program, l, bias, programs, allocators := p.Program, p.library, p.bias(), p.recovery.programs, p.Allocators()
	return d.scan(p, d.rereading, func(ctx context.Context, of host.ReadableProcess, give func(memory)) {
		if programs {
			if err := d.kernel.ForgetPrograms(program.PID); err != nil {
				d.warn(fmt.Sprintf("reading the programs of process %d again: %v", program.PID, err))
			}
			d.kernel.ChangeProcess(program, bpf.ProcessLate, 0) // it may have ended
		}
		give(readAll(ctx, l, of, bias, allocators))
	}, d.takeReread)
}

// readAll reads the live buffers of a process; allocators are known ones.
func readAll(ctx context.Context, l *libraries.Library, of host.ReadableProcess, bias uint64, allocators []uint64) (m memory) {
	seen := make(map[uint64]bool)
	m.err = l.Read(ctx, of, bias, func(d heap.Device, buffers []heap.Buffer) {
		seen[d.Allocator] = true
		m.Devices, m.Buffers = append(m.Devices, d), append(m.Buffers, buffers...)
	})
	if m.err == nil || heap.LacksSizesOnly(m.err) {
		others := slices.DeleteFunc(allocators, func(a uint64) bool { return seen[a] })
		m.Closed, m.err = l.ReadAllocators(ctx, of, bias, others, func(buffers []heap.Buffer) {
			m.Buffers = append(m.Buffers, buffers...)
		})
	}
	if heap.LacksSizesOnly(m.err) {
		m.err = nil // they may be known
	}
	return m
}

// takeReread corrects a process by the result of a reading, unless events were lost since.
func (d *decoder) takeReread(p *process, m *memory) bool {
	d.countLosses()
	d.reportLosses()
	r := p.recovery
	r.stop = nil
	if m.err != nil || r.never || r.sinceNs == 0 || !p.Corrects(&m.Reading) {
		r.unfollow(p)
		return true
	}
	e := d.readEvent(p, m)
	p.Correct(e, &m.Reading, r.programs, r.beganNs)
	e.Kind = event.Reread
	p.Emit(&e)
	p.recovery = nil
	p.Unfollow()
	delete(d.recovering, p)
	return true
}
