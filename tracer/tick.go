package tracer

import (
	"math"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
)

const (
	// countNs is how often the kernel side's loss counters are read, which costs as much as a
	// check of the ring buffer.
	countNs = 100e6
	// peaksNs is how often processes are checked for new peaks.
	peaksNs = 25e6
	// sweepNs is how often processes are checked for having ended.
	sweepNs = 10e9
	// lateGraceNs is how long the end of tracing waits for existing buffers that are being read: Ctrl-C may follow the attach.
	lateGraceNs = 1e9
	// holdBackNs is how long an event waits for an earlier one that arrives later. The kernel
	// reads the clock before it sends the record, so another CPU may overtake.
	holdBackNs = 10e6
	// finished is the time up to which events are released when tracing ends.
	finished = math.MaxUint64
)

// tick applies results that did not come through the ring buffer, and returns the time before which events can be
// released. drained means that all records from before now were decoded. endNs is when the end of
// tracing was requested, or 0: once tick returns finished, nothing more is waited for.
func (d *decoder) tick(nowNs uint64, drained bool, endNs uint64) (untilNs uint64) {
	late := uint64(0)
	switch {
	case drained:
		d.drainedNs = nowNs
	case d.newest > d.drainedNs: // else a record is being written
		late = nowNs - min(nowNs, d.newest)
	}
	// Older records may be still to come otherwise: what was found meanwhile waits for them.
	untilNs = min(nowNs, max(d.newest, d.drainedNs))
	untilNs -= min(untilNs, holdBackNs)
	d.backlog.Is(late, d.isShared)
	if d.taken = 0; endNs != 0 {
		d.taken = math.MinInt / 2 // all
	}
	d.known = untilNs
	d.inbox.take(d, d.known)
	d.rename()
	if nowNs-d.countedNs > countNs || endNs != 0 {
		d.countedNs = nowNs
		d.countLosses()
	}
	d.beginLate()
	d.wantAtPeaks(nowNs)
	d.searches.Begin(nowNs)
	d.readResident(nowNs)
	if nowNs-d.namedNs > commandNs {
		d.namedNs = nowNs
		d.readCommandsAgain()
	}
	if drained {
		d.rereadAll(untilNs)
		if nowNs-d.sweptNs > sweepNs {
			d.sweptNs = nowNs
			d.sweep(nowNs)
		}
	}
	waiting := d.reads.waitingSince()
	untilNs = min(untilNs, waiting, d.thrownSince(d.known))
	// after endNs, more events are not waited for
	if endNs != 0 && (drained || d.newest > endNs+holdBackNs) && waiting > endNs &&
		(nowNs > endNs+lateGraceNs || d.inbox.late.Load() == 0) {
		d.known, untilNs = finished, finished
		d.inbox.take(d, finished)
		d.rename()
		d.finish()
	}
	d.reportLosses()
	return untilNs
}

// thrownSince reports the exceptions that have left, and returns the time of the first one for which
// later events wait: see books.ThrownSince.
func (d *decoder) thrownSince(knownNs uint64) uint64 {
	since := uint64(math.MaxUint64)
	for p := range d.throwing {
		if since = min(since, p.ThrownSince(knownNs)); !p.Throwing() {
			delete(d.throwing, p)
		}
	}
	return since
}

// release passes the events before a time to handle, oldest first.
func (d *decoder) release(untilNs uint64, handle func(*event.Event)) {
	pass := handle
	if d.backlog.Late() {
		pass = func(e *event.Event) {
			d.turn(e.PID)
			handle(e)
		}
	}
	d.queue.Release(untilNs, pass)
	d.turn(0)
	d.searches.EndOver(untilNs)
}

// finish counts the processes that were still being read when tracing ended.
func (d *decoder) finish() {
	d.countLosses() // those that waited for records
	for _, p := range d.processes {
		if p.unlisted && d.hasEnded(p) {
			d.end(p, event.Event{TimeNs: host.Now(), ExitStatus: event.UnknownStatus})
			continue
		}
		if p.late != nil {
			d.lose(p, lateUnread, 1, host.Now())
		}
		p.EndReads(books.ProgramUnread)
	}
	for p := range d.throwing {
		p.EndThrown()
	}
}
