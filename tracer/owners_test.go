package tracer

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestMarksAskForOwners: those of the process whose call is a mark, and of all processes at one that a user
// sets.
func TestMarksAskForOwners(t *testing.T) {
	d := newTestDecoder()
	d.OwnersAtMarks = true
	for _, pid := range []uint32{7, 8} {
		r := bufferRecord(2, 0x1000, 1)
		r.H.Tgid, r.H.Tid = pid, pid
		d.decode(raw(r))
	}
	searched := func() (pids []int) {
		d.searches.Begin(10)
		d.inbox.take(d, finished)
		d.release(finished, func(e *event.Event) {
			if e.Kind == event.Owner {
				pids = append(pids, e.PID)
			}
		})
		return pids
	}
	var got []int
	d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, markRecord("step"))
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { got = append(got, searched()...); return len(got) == 1 })))
	qt.Check(t, qt.DeepEquals(got, []int{7}))
	d.wantAtMark(nil)
	got = nil
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { got = append(got, searched()...); return len(got) == 2 })))
	qt.Check(t, qt.ContentEquals(got, []int{7, 8}))
}
