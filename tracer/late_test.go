package tracer

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/heap"
)

// What was read of processes is reported in parts, so that other events do not wait, in the
// order of each process, and all of it when tracing ends.
func TestLateResultsAreTakenInParts(t *testing.T) {
	late := &lateAttach{}
	part := make([]heap.Buffer, maxTaken/2)
	fill := func() *finder {
		f := &finder{late: lateAttaches{byPID: map[int]*lateAttach{7: late}}}
		f.late.pending.Store(1)
		for i := range uint64(5) {
			f.late.results = append(f.late.results, lateResult{pid: 7, late: late, readNs: i, buffers: part})
		}
		f.late.results = append(f.late.results, lateResult{pid: 7, late: late, readNs: 5, last: true})
		return f
	}
	take := func(f *finder, all bool) (order []uint64) {
		f.takeLate(10, all, func(r *lateResult) { order = append(order, r.readNs) })
		return order
	}
	f := fill()
	qt.Check(t, qt.DeepEquals(take(f, false), []uint64{0, 1}))
	qt.Check(t, qt.DeepEquals(take(f, false), []uint64{2, 3}))
	qt.Check(t, qt.IsTrue(f.late.reading()))
	qt.Check(t, qt.DeepEquals(take(f, false), []uint64{4, 5}))
	qt.Check(t, qt.IsFalse(f.late.reading()))
	qt.Check(t, qt.DeepEquals(take(fill(), true), []uint64{0, 1, 2, 3, 4, 5}))
}
