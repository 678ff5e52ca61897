package tracer

import (
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/heap"
)

// What was read of processes is reported in parts, so that other events do not wait, in the
// order of each process, and all of it when tracing ends.
func TestLateResultsAreTakenInParts(t *testing.T) {
	d, late := newTestDecoder(), &lateAttach{}
	part := make([]heap.Buffer, maxTaken/2)
	add := func(f *finder, r *lateResult) {
		r.pid, r.late = 7, late
		f.inbox.add(found{r.readNs, func(d *decoder) bool { return f.takeLate(d, r) }})
	}
	fill := func() *finder {
		f := &finder{inbox: new(inbox), late: lateAttaches{byPID: map[int]*lateAttach{7: late}}}
		f.late.pending.Store(1)
		for i := range uint64(5) {
			add(f, &lateResult{readNs: i, buffers: part})
		}
		add(f, &lateResult{readNs: 5, last: true})
		return f
	}
	// take returns the time of the last result that is taken.
	take := func(f *finder, taken int) uint64 {
		d.taken = taken
		f.inbox.take(d, 10)
		return d.processes[7].lateNs
	}
	f := fill()
	qt.Check(t, qt.Equals(take(f, 0), 1))
	qt.Check(t, qt.Equals(take(f, 0), 3))
	qt.Check(t, qt.IsTrue(f.late.reading()))
	qt.Check(t, qt.Equals(take(f, 0), 5))
	qt.Check(t, qt.IsFalse(f.late.reading()))
	qt.Check(t, qt.Equals(take(fill(), math.MinInt), 5))
}

// TestResultsDoNotWaitForSilence: while records come without a pause, a result is taken once all records
// from before it were decoded.
func TestResultsDoNotWaitForSilence(t *testing.T) {
	d := newTestDecoder()
	d.newest = 1e9
	var taken []uint64
	for _, atNs := range []uint64{0, 0.98e9, 0.995e9, 1.5e9} {
		d.reads.inbox.add(found{atNs, func(*decoder) bool {
			taken = append(taken, atNs)
			return true
		}})
	}
	d.tick(2e9, false, 0)
	qt.Check(t, qt.DeepEquals(taken, []uint64{0, 0.98e9}))
	d.tick(2e9, true, 0)
	qt.Check(t, qt.HasLen(taken, 4))
}
