package tracer

import (
	"math"
	"slices"
	"strings"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// This file tells exceptions that leave the library from those that it catches itself. The kernel side
// reports each exception when it is made, and when the library catches it or throws it again. One that
// the library caught last is no failure: the operation goes on.

const (
	// caughtNs is how long the library may take to catch an exception. Later events wait for that long
	// after it was made, so that events stay in order of time. It takes microseconds.
	caughtNs = 100e6
	// maxThrown bounds the exceptions of a process that are waited for.
	maxThrown = 64
)

// thrown is an exception of the library that is not known to have left it.
type thrown struct {
	exception uint64 // its address in the process
	sinceNs   uint64 // when it was thrown last
	inside    bool   // the library caught it
	event     event.Event
}

// throw adds an exception. An earlier one of the same thread is over, and one at the same address.
func (p *process) throw(d *decoder, t thrown) {
	if i := slices.IndexFunc(p.thrown, func(o thrown) bool { return o.event.TID == t.event.TID }); i >= 0 {
		earlier := p.thrown[i]
		if earlier.inside && t.sinceNs < earlier.sinceNs+caughtNs && repeats(t.event.Message, earlier.event.Message) {
			t.event = earlier.event // the first one has the figures
			t.inside = false
		}
		p.endThrown(d, i)
	}
	for i := len(p.thrown) - 1; i >= 0; i-- {
		if p.thrown[i].exception == t.exception {
			p.endThrown(d, i)
		}
	}
	if len(p.thrown) == maxThrown {
		p.endThrown(d, 0)
	}
	p.thrown = append(p.thrown, t)
	d.throwing[p] = true
}

// repeats reports whether the text of an exception contains that of an earlier one, which was caught
// to throw it, and more. The same text may be that of another call, which fails in the same way.
func repeats(message, earlier string) bool {
	first, _, _ := strings.Cut(event.Info(earlier), "\n")
	return first != "" && message != earlier && strings.Contains(message, first)
}

// caught notes that the library caught an exception, or throws it again.
func (p *process) caught(e event.Event, r *bpf.KernelCaughtRecord) {
	for i := range p.thrown {
		if t := &p.thrown[i]; t.exception == r.Exception {
			t.inside, t.sinceNs = r.H.Flags&bpf.CaughtThrownAgain == 0, e.TimeNs
		}
	}
}

// endThrown ends the wait for an exception. It is reported unless it was caught inside the library.
func (p *process) endThrown(d *decoder, i int) {
	t := p.thrown[i]
	if p.thrown = slices.Delete(p.thrown, i, i+1); len(p.thrown) == 0 {
		delete(d.throwing, p)
	}
	if t.inside {
		return
	}
	t.event.TimeNs = max(t.event.TimeNs, d.queue.released)
	d.emit(t.event)
	if t.event.Kind == event.AllocFailed {
		d.wantAfterFailure(p)
	}
}

// endAllThrown ends the wait for all exceptions of a process.
func (p *process) endAllThrown(d *decoder) {
	for len(p.thrown) > 0 {
		p.endThrown(d, 0)
	}
}

// thrownSince reports the exceptions that have left, and returns the time of the first one for which
// later events wait. All records before knownNs were decoded.
func (d *decoder) thrownSince(knownNs uint64) uint64 {
	since := uint64(math.MaxUint64)
	for p := range d.throwing {
		for i := 0; i < len(p.thrown); {
			switch t := &p.thrown[i]; {
			case t.inside:
			case t.sinceNs+caughtNs < knownNs:
				p.endThrown(d, i)
				continue
			case t.event.TimeNs+caughtNs < knownNs: // it is thrown again and again: nothing waits for it
			default:
				since = min(since, t.event.TimeNs)
			}
			i++
		}
	}
	return since
}
