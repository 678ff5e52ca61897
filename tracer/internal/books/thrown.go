package books

import (
	"math"
	"slices"
	"strings"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/libraries"
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
func (b *Books) throw(t thrown) {
	if i := slices.IndexFunc(b.thrown, func(o thrown) bool { return o.event.TID == t.event.TID }); i >= 0 {
		earlier := b.thrown[i]
		if earlier.inside && t.sinceNs < earlier.sinceNs+caughtNs && repeats(t.event.Message, earlier.event.Message) {
			t.event = earlier.event // the first one has the figures
			t.inside = false
		}
		b.endThrown(i)
	}
	for i := len(b.thrown) - 1; i >= 0; i-- {
		if b.thrown[i].exception == t.exception {
			b.endThrown(i)
		}
	}
	if len(b.thrown) == maxThrown {
		b.endThrown(0)
	}
	b.thrown = append(b.thrown, t)
}

// repeats reports whether the text of an exception contains that of an earlier one, which was caught
// to throw it, and more. The same text may be that of another call, which fails in the same way.
func repeats(message, earlier string) bool {
	first, _, _ := strings.Cut(event.Info(earlier), "\n")
	return first != "" && message != earlier && strings.Contains(message, first)
}

// caught notes that the library caught an exception, or throws it again.
func (b *Books) caught(e *event.Event, _ *libraries.Library, r *bpf.KernelCaughtRecord) {
	for i := range b.thrown {
		if t := &b.thrown[i]; t.exception == r.Exception {
			t.inside, t.sinceNs = r.H.Flags&bpf.CaughtThrownAgain == 0, e.TimeNs
		}
	}
}

// endThrown ends the wait for an exception. It is reported unless it was caught inside the library.
func (b *Books) endThrown(i int) {
	t := b.thrown[i]
	if b.thrown = slices.Delete(b.thrown, i, i+1); !t.inside {
		b.process.Emit(&t.event)
	}
}

// EndThrown ends the wait for all exceptions.
func (b *Books) EndThrown() {
	for len(b.thrown) > 0 {
		b.endThrown(0)
	}
}

// Throwing reports whether there are exceptions that may not have left the library.
func (b *Books) Throwing() bool { return len(b.thrown) > 0 }

// ThrownSince reports the exceptions that have left, and returns the time of the first one for which
// later events wait. All records before knownNs were decoded.
func (b *Books) ThrownSince(knownNs uint64) uint64 {
	since := uint64(math.MaxUint64)
	for i := 0; i < len(b.thrown); {
		switch t := &b.thrown[i]; {
		case t.inside:
		case t.sinceNs+caughtNs < knownNs:
			b.endThrown(i)
			continue
		case t.event.TimeNs+caughtNs < knownNs: // it is thrown again and again: nothing waits for it
		default:
			since = min(since, t.event.TimeNs)
		}
		i++
	}
	return since
}
