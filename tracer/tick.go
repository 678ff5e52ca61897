package tracer

import (
	"math"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/libraries"
)

const (
	// countNs is how often the kernel side's loss counters are read, which costs as much as a
	// check of the ring buffer.
	countNs = 100e6
	// sweepNs is how often processes are checked for having ended.
	sweepNs = 10e9
	// lateGraceNs is how long the end of tracing waits for existing buffers that are being read,
	// so that a report has them if Ctrl-C follows the attach at once.
	lateGraceNs = 1e9
	// finished is the time up to which events are released when tracing ends.
	finished = math.MaxUint64
)

// tick applies results that did not come through the ring buffer, and returns the time before which events can be
// released. drained means that all records from before now were decoded. endNs is when the end of
// tracing was requested, or 0: once tick returns finished, nothing more is waited for.
func (d *decoder) tick(nowNs uint64, drained bool, endNs uint64) (untilNs uint64) {
	untilNs = nowNs - min(nowNs, holdBackNs)
	if d.taken = 0; endNs != 0 {
		d.taken = math.MinInt / 2 // all
	}
	known := untilNs // all records up to then were decoded
	if !drained {
		known = min(known, d.newest-min(d.newest, holdBackNs))
	}
	d.reads.inbox.take(d, known)
	if nowNs-d.countedNs > countNs || endNs != 0 {
		d.countedNs = nowNs
		d.countLosses()
	}
	d.beginSearches(nowNs)
	if drained {
		d.reread(untilNs)
		if nowNs-d.sweptNs > sweepNs {
			d.sweptNs = nowNs
			d.sweep(max(nowNs, d.queue.released))
		}
	}
	waiting := d.reads.waitingSince()
	untilNs = min(untilNs, waiting, d.thrownSince(known))
	// after endNs, more events are not waited for
	if endNs != 0 && (drained || d.queue.newest() > endNs+holdBackNs) && waiting > endNs &&
		(nowNs > endNs+lateGraceNs || !d.readsLate()) {
		d.end()
		untilNs = finished
	}
	d.reportLosses()
	return untilNs
}

// release passes the events before a time to handle, oldest first.
func (d *decoder) release(untilNs uint64, handle func(*event.Event)) {
	d.queue.release(untilNs, handle)
	d.searches.endOver(untilNs)
}

// readsLate reports whether the existing buffers of a process are being read.
func (d *decoder) readsLate() bool {
	for pid := range d.processes {
		if d.host.lateOf(pid) != nil {
			return true
		}
	}
	return false
}

// end counts the processes that were still being read when tracing ended.
func (d *decoder) end() {
	for pid := range d.processes {
		if d.host.lateOf(pid) != nil {
			d.lose(pid, lateUnread, 1, host.Now())
		}
		d.endReads(pid, programUnread)
	}
	for _, p := range d.throwing {
		p.endAllThrown(d)
	}
}

// discovered takes an event that comes from the host. l is the library of a process that starts.
func (d *decoder) discovered(e event.Event, l *libraries.Library) {
	// events after its time may have been reported already
	e.TimeNs = max(e.TimeNs, d.queue.released)
	switch {
	case e.Kind == event.Lost:
		d.lose(e.PID, e.Cause, e.Count, e.TimeNs)
	case e.Kind != event.ProcessStart:
		d.emit(e)
	case host.Ended(e.PID):
		d.process(e.PID) // until the record of its end, or a sweep
	default:
		d.start(&e, l)
	}
}
