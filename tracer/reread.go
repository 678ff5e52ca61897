package tracer

// After a loss, this file reads the live buffers of a process from its memory again, and emits
// events that take the place of the lost ones.

import (
	"context"
	"slices"

	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
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
var uncorrected = []string{quota.Beyond, unknownType, tooManyProcesses, "library not known", notTraced, "id of a chip not plausible", "too many devices", "too many allocators"}

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
	library *libraries.Library
	beganNs uint64
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
func (d *decoder) recover(l loss, p *traced) {
	r := p.recovery
	if r == nil {
		r = &recovery{}
		p.recovery, d.recovering[l.pid] = r, p
	}
	r.unfollow()
	r.never = r.never || slices.Contains(uncorrected, l.cause)
	r.programs = r.programs || l.cause != lateUnread && !slices.Contains(ofBuffers, l.cause)
}

// giveUp ends the recovery of a process.
func (d *decoder) giveUp(pid int) {
	if p := d.recovering[pid]; p != nil && p.recovery.reading != nil {
		p.recovery.reading.stop()
	}
	delete(d.recovering, pid)
}

// reread begins to read the memory of processes. All records up to a time have been decoded.
func (d *decoder) reread(until uint64) {
	for pid, p := range d.recovering {
		switch r := p.recovery; {
		case r.never || r.reading != nil:
		case r.sinceNs == 0:
			if until >= p.rereadNs {
				r.follow(until)
			}
		case until >= r.sinceNs+quietNs:
			d.beginReread(pid, p, until)
		}
	}
}

func (d *decoder) takeReread(pid int, reading *reread, result *rereadResult) {
	p := d.recovering[pid]
	if p == nil || p.recovery.reading != reading {
		return // the process has ended
	}
	d.countLosses()
	d.reportLosses()
	if d.endReread(pid, p, result); p.recovery == nil {
		delete(d.recovering, pid)
	}
}

func (d *decoder) beginReread(pid int, p *traced, nowNs uint64) {
	known := make([]uint64, 0, len(p.allocators))
	for a := range p.allocators {
		known = append(known, a)
	}
	r := p.recovery
	if r.reading = d.host.readAgain(pid, known, r.programs); r.reading == nil {
		r.unfollow()
		p.rereadNs = nowNs + rereadNs
		return
	}
	p.rereadNs = nowNs + min(rereadNs<<p.rereads, maxRereadNs)
	p.rereads = min(p.rereads+1, 8)
}

// endReread corrects a process by the result of a reading, unless events were lost since.
func (d *decoder) endReread(pid int, p *traced, result *rereadResult) {
	r := p.recovery
	reading := r.reading
	r.reading = nil
	if result.err != nil || r.never || r.sinceNs == 0 || d.lacksSizes(p, result.buffers) {
		r.unfollow()
		return
	}
	atNs := max(d.newest, result.readNs, d.queue.released)
	e := event.Event{TimeNs: atNs, PID: pid, TID: pid, Reread: true}
	d.start(&e, reading.library)
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
	d.addRead(e, reading.library, result.devices, result.buffers, r.changed, r.cleared)
	if r.programs {
		for id, g := range p.programs {
			if g.timeNs < reading.beganNs { // it is reported when it runs next
				d.endProgram(e, p, id, g.holds)
			}
		}
		d.runtimeKernels(e, reading.library, result.devices) // these never run again
	}
	e.Kind, e.Reread = event.Reread, false
	d.emit(e)
	p.recovery = nil
}

// lacksSizes reports whether the memory of a sharded buffer in its banks or cores is known neither
// from its events nor from the reading.
func (d *decoder) lacksSizes(p *traced, buffers []heap.Buffer) bool {
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
func (d *decoder) endLost(e event.Event, p *traced, object uint64, b liveBuffer) {
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

// readAgain reads the live buffers of a process in the background, one process of each user at a
// time. Close does not wait for it, because a read of memory may never return. With programs, the
// kernel side also reports the process's programs again when they run.
func (f *finder) readAgain(pid int, allocators []uint64, programs bool) *reread {
	f.mu.Lock()
	defer f.mu.Unlock()
	mapper, uid := f.libraries.Seen[pid], f.starts[pid].UID
	if mapper == nil || f.late.byPID[pid] != nil || f.rereading[uid] {
		return nil
	}
	f.rereading[uid] = true
	if programs {
		f.forgetPrograms(pid)
		f.markLate(pid)
	}
	ctx, stop := context.WithCancel(f.closing)
	l, bias := mapper.Library, mapper.Bias(mapper.First.Start, mapper.First.Offset)
	r := &reread{library: l, beganNs: host.Now(), stop: stop}
	go func() {
		defer stop()
		result := readAll(ctx, l, f.reads.readers.Of(pid), bias, allocators)
		f.mu.Lock()
		delete(f.rereading, uid)
		f.mu.Unlock()
		f.inbox.add(found{result.readNs, func(d *decoder) bool {
			d.takeReread(pid, r, &result)
			return true
		}})
	}()
	return r
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
