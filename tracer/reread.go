package tracer

// After a loss, this file has the live buffers of a process read from its memory again.

import (
	"context"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/books"
	"ttmem/tracer/event"
	"ttmem/tracer/find"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
)

const (
	// quietNs is how long events of a process are followed before its memory is read. If none
	// was lost in that time, they are right about the objects that they name.
	quietNs uint64 = 1e9
	// rereadNs is the time between two readings of a process. Each one doubles it, up to
	// maxRereadNs, because a program can lose events on purpose.
	rereadNs    uint64 = 5e9
	maxRereadNs uint64 = 300e9
)

// A recovery brings the figures of a process that lost events right again.
type recovery struct {
	programs bool   // events of programs may be lost too
	never    bool   // reading does not help
	sinceNs  uint64 // the time from which events are followed; 0: they are not
	reading  *reread
}

// reread is a reading of a process's memory.
type reread struct {
	beganNs uint64
	user    int
	stop    context.CancelFunc
}

type rereadResult struct {
	books.Reading
	readNs uint64
	err    error
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
		cause == find.NotTraced || cause == kernel.Causes[bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES]
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
		case r.never || r.reading != nil || p.late != nil:
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
	if r := p.recovery; !d.mayReread(p) {
		r.unfollow(p)
		p.rereadNs = nowNs + rereadNs
		return
	}
	p.rereadNs = nowNs + min(rereadNs<<p.rereads, maxRereadNs)
	p.rereads = min(p.rereads+1, 8)
	reading := &reread{beganNs: host.Now(), user: p.user}
	p.recovery.reading = reading
	d.reread(p, reading, p.Allocators())
}

// mayReread reports whether the live buffers of a process can be read again now, and takes the turn of
// its user.
func (d *decoder) mayReread(p *process) bool {
	if p.mapped == nil {
		d.locate(p.PID, p.user) // until the next time
		return false
	}
	return d.rereading.begin(p.user, 1)
}

// readAgain reads the live buffers of a process in the background. Close does not wait for it, because
// a read of memory may never return. If programs may be lost, the kernel side also reports the process's
// programs again when they run.
func (d *decoder) readAgain(p *process, reading *reread, allocators []uint64) {
	ctx, stop := context.WithCancel(d.closing)
	reading.stop = stop
	program, l, bias, programs := p.Program, p.library, p.bias(), p.recovery.programs
	go func() {
		defer stop()
		defer d.rereading.end(reading.user)
		if programs {
			if err := d.kernel.ForgetPrograms(program.PID); err != nil {
				d.warn(fmt.Sprintf("reading the programs of process %d again: %v", program.PID, err))
			}
			d.kernel.ChangeProcess(program, bpf.ProcessLate, 0) // it may have ended
		}
		r := readAll(ctx, l, d.reads.readers.Of(program.PID), bias, allocators)
		d.inbox.add(result{program, r.readNs, func(d *decoder) bool {
			d.takeReread(d.processes[program.PID], &r)
			return true
		}})
	}()
}

func (d *decoder) takeReread(p *process, result *rereadResult) {
	d.countLosses()
	d.reportLosses()
	if d.endReread(p, result); p.recovery == nil {
		delete(d.recovering, p)
	}
}

// endReread corrects a process by the result of a reading, unless events were lost since.
func (d *decoder) endReread(p *process, result *rereadResult) {
	r := p.recovery
	reading := r.reading
	r.reading = nil
	if result.err != nil || r.never || r.sinceNs == 0 || !p.Corrects(&result.Reading) {
		r.unfollow(p)
		return
	}
	e := event.Event{TimeNs: max(d.newest, result.readNs, d.queue.released), PID: p.PID, TID: p.PID}
	p.Correct(e, &result.Reading, r.programs, reading.beganNs)
	e.Kind = event.Reread
	p.Emit(e)
	p.recovery = nil
	p.Unfollow()
}

// readAll reads the live buffers of a process; allocators are known ones.
func readAll(ctx context.Context, l *libraries.Library, process host.ReadableProcess, bias uint64, allocators []uint64) (r rereadResult) {
	seen := make(map[uint64]bool)
	r.err = l.Read(ctx, process, bias, func(d heap.Device, buffers []heap.Buffer) {
		seen[d.Allocator] = true
		r.Devices, r.Buffers = append(r.Devices, d), append(r.Buffers, buffers...)
	})
	if r.err == nil || heap.LacksSizesOnly(r.err) {
		others := slices.DeleteFunc(allocators, func(a uint64) bool { return seen[a] })
		r.Closed, r.err = l.ReadAllocators(ctx, process, bias, others, func(buffers []heap.Buffer) {
			r.Buffers = append(r.Buffers, buffers...)
		})
	}
	if heap.LacksSizesOnly(r.err) {
		r.err = nil // they may be known
	}
	r.readNs = host.Now()
	return r
}
