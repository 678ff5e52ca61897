package tracer

// After a loss, this file reads the live buffers of a process from its memory again, and emits
// events that take the place of the lost ones.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/find"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
	"ttmem/tracer/quota"
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

// uncorrected are causes of losses that reading the memory again does not correct.
var uncorrected = []string{quota.Beyond, unknownType, kernel.Causes[bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES], "library not known", find.NotTraced, "id of a chip not plausible", "too many devices", "too many allocators"}

// A recovery brings the figures of a process that lost events right again. Its methods may be
// called with nil.
type recovery struct {
	programs bool // events of programs may be lost too
	never    bool // reading does not help
	// sinceNs is the time from which events are followed; 0: they are not. changed are the
	// Buffers and cleared the allocators that these events are about, by address.
	sinceNs          uint64
	changed, cleared map[uint64]bool
	reading          *reread
}

// reread is a reading of a process's memory.
type reread struct {
	beganNs uint64
	user    int
	stop    context.CancelFunc
}

type rereadResult struct {
	readNs  uint64
	devices []heap.Device
	buffers []heap.Buffer
	closed  []uint64 // known allocators that no longer exist
	err     error
}

func (r *recovery) follow(sinceNs uint64) {
	r.sinceNs, r.changed, r.cleared = sinceNs, make(map[uint64]bool), make(map[uint64]bool)
}

func (r *recovery) unfollow() { r.sinceNs, r.changed, r.cleared = 0, nil, nil }

func (r *recovery) touch(object uint64) {
	if r == nil || r.sinceNs == 0 {
		return
	}
	if r.changed[object] = true; len(r.changed) > maxFreed {
		r.unfollow()
	}
}

func (r *recovery) clear(allocator uint64) {
	if r != nil && r.sinceNs != 0 {
		r.cleared[allocator] = true
	}
}

// recover schedules another reading of a process's memory after a loss.
func (d *decoder) recover(p *process, cause string) {
	r := p.recovery
	if r == nil {
		r = &recovery{}
		p.recovery = r
		d.recovering[p] = true
	}
	r.unfollow()
	// A fork that has no buffer of its own yet may have lost its first ones: those that it inherited look
	// the same.
	r.never = r.never || slices.Contains(uncorrected, cause) || p.forked && p.firstID == 0
	r.programs = r.programs || cause != lateUnread && !slices.Contains(ofBuffers, cause)
}

// rereadAll begins to read the memory of processes. All records up to a time have been decoded.
func (d *decoder) rereadAll(until uint64) {
	for p := range d.recovering {
		switch r := p.recovery; {
		case r.never || r.reading != nil:
		case r.sinceNs == 0:
			if until >= p.rereadNs {
				r.follow(until)
			}
		case until >= r.sinceNs+quietNs:
			d.beginReread(p, until)
		}
	}
}

func (d *decoder) beginReread(p *process, nowNs uint64) {
	if r := p.recovery; !d.mayReread(p) {
		r.unfollow()
		p.rereadNs = nowNs + rereadNs
		return
	}
	p.rereadNs = nowNs + min(rereadNs<<p.rereads, maxRereadNs)
	p.rereads = min(p.rereads+1, 8)
	reading := &reread{beganNs: host.Now(), user: p.user}
	p.recovery.reading = reading
	d.reread(p, reading, slices.Collect(maps.Keys(p.allocators)))
}

// mayReread reports whether the live buffers of a process can be read again now, and takes the turn of
// its user.
func (d *decoder) mayReread(p *process) bool {
	if p.mapped == nil {
		d.locate(p.PID, p.user) // until the next time
		return false
	}
	return p.late == nil && d.rereading.begin(p.user, 1)
}

// readAgain reads the live buffers of a process in the background. Close does not wait for it, because
// a read of memory may never return. If programs may be lost, the kernel side also reports the process's
// programs again when they run.
func (d *decoder) readAgain(p *process, reading *reread, allocators []uint64) {
	if p.recovery.programs {
		if err := d.kernel.ForgetPrograms(p.PID); err != nil {
			d.warn(fmt.Sprintf("reading the programs of process %d again: %v", p.PID, err))
		}
		d.kernel.ChangeProcess(p.Program, bpf.ProcessLate, 0) // it may have ended
	}
	ctx, stop := context.WithCancel(d.closing)
	reading.stop = stop
	program, l, bias := p.Program, p.library, p.bias()
	go func() {
		defer stop()
		defer d.rereading.end(reading.user)
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
	if result.err != nil || r.never || r.sinceNs == 0 || d.lacksSizes(p, result.buffers) {
		r.unfollow()
		return
	}
	atNs := max(d.newest, result.readNs, d.queue.released)
	e := event.Event{TimeNs: atNs, PID: p.PID, TID: p.PID, Reread: true}
	d.start(p, &e)
	p.lateNs = atNs
	for _, a := range result.closed {
		if p.allocators[a] != nil && !r.cleared[a] {
			d.closeDevice(e, p, a)
		}
	}
	found := make(map[uint64]uint64, len(result.buffers))
	for i := range result.buffers {
		found[result.buffers[i].Object] = result.buffers[i].ID
	}
	for object, b := range p.live {
		if r.changed[object] || r.cleared[b.allocator] {
			continue // its events are right
		}
		if id, ok := found[object]; !ok || id != b.id || !b.complete {
			d.endLost(e, p, object, b)
		}
	}
	d.addRead(p, e, result.devices, result.buffers, r.changed, r.cleared)
	if r.programs {
		for id, g := range p.programs {
			if g.timeNs < reading.beganNs { // it is reported when it runs next
				d.endProgram(e, p, id, g.holds)
			}
		}
		d.runtimeKernels(p, e, result.devices) // these never run again
	}
	e.Kind, e.Reread = event.Reread, false
	d.emit(e)
	p.recovery = nil
}

// lacksSizes reports whether the memory of a sharded buffer in its banks or cores is known neither
// from its events nor from the reading.
func (d *decoder) lacksSizes(p *process, buffers []heap.Buffer) bool {
	r := p.recovery
	return slices.ContainsFunc(buffers, func(b heap.Buffer) bool {
		if b.BytesPerBank != 0 || !b.Layout.Sharded() && !b.PerCore || r.changed[b.Object] || r.cleared[b.Allocator] {
			return false
		}
		known, ok := p.live[b.Object]
		return !(ok && known.id == b.ID && known.complete) && !d.inherited(p, &b)
	})
}

// endLost reports a buffer whose free was lost.
func (d *decoder) endLost(e event.Event, p *process, object uint64, b liveBuffer) {
	delete(p.live, object)
	if b.read {
		e.TimeNs = max(e.TimeNs, p.lateNs)
	}
	e.Kind, e.Reason, e.Object, e.BufferID, e.Allocator = event.Free, event.ReasonExplicit, object, b.id, b.allocator
	e.Region, e.BeforeAttach = b.region, b.before
	if a := p.allocators[b.allocator]; a != nil {
		e.Devices = a.device.chips
	}
	d.emit(e)
}

// readAll reads the live buffers of a process; allocators are known ones.
func readAll(ctx context.Context, l *libraries.Library, process host.ReadableProcess, bias uint64, allocators []uint64) (r rereadResult) {
	seen := make(map[uint64]bool)
	r.err = l.Read(ctx, process, bias, func(d heap.Device, buffers []heap.Buffer) {
		seen[d.Allocator] = true
		r.devices, r.buffers = append(r.devices, d), append(r.buffers, buffers...)
	})
	if r.err == nil || heap.LacksSizesOnly(r.err) {
		others := slices.DeleteFunc(allocators, func(a uint64) bool { return seen[a] })
		r.closed, r.err = l.ReadAllocators(ctx, process, bias, others, func(buffers []heap.Buffer) {
			r.buffers = append(r.buffers, buffers...)
		})
	}
	if heap.LacksSizesOnly(r.err) {
		r.err = nil // they may be known
	}
	r.readNs = host.Now()
	return r
}
