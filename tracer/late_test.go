package tracer

import (
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/internal/find"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/kernel"
)

// What was read of processes is reported in parts, so that other events do not wait, in the
// order of each process, and all of it when tracing ends.
func TestLateResultsAreTakenInParts(t *testing.T) {
	d := newTestDecoder()
	p := d.process(7)
	part := make([]heap.Buffer, maxTaken/2)
	add := func(r *memory) {
		d.inbox.add(result{p, r.readNs, func(d *decoder) bool { return d.takeLate(p, r) }})
	}
	fill := func() {
		d.attachLate(p)
		d.inbox.late.Add(1)
		for i := range uint64(5) {
			add(&memory{readNs: i, Reading: books.Reading{Buffers: part}})
		}
		add(&memory{readNs: 5, last: true})
	}
	// take returns the time of the last result that is taken.
	take := func(taken int) uint64 {
		d.taken = taken
		d.inbox.take(d, 10)
		return p.ReadNs
	}
	fill()
	qt.Check(t, qt.Equals(take(0), 1))
	qt.Check(t, qt.Equals(take(0), 3))
	qt.Check(t, qt.Equals(d.inbox.late.Load(), 1))
	qt.Check(t, qt.Equals(take(0), 5))
	qt.Check(t, qt.Equals(d.inbox.late.Load(), 0))
	fill()
	qt.Check(t, qt.Equals(take(math.MinInt), 5))
}

// TestResultsOfAProcessThatEndedAreDropped: another one may have its id, and a loss of its program may be counted after its
// end.
func TestResultsOfAProcessThatEndedAreDropped(t *testing.T) {
	d := newTestDecoder()
	var reported []int
	for i, execID := range []uint64{1, 2, 2} {
		program := kernel.Program{PID: 7, ExecID: execID}
		if p := d.processes[7]; p != nil {
			d.end(p, event.Event{})
		}
		d.countLoss(kernelLoss{bpf.KernelLossKey{Tgid: 7, ExecId: execID}, bpf.KernelLoss{Count: 1}})
		p := d.processes[7]
		qt.Assert(t, qt.Equals(p.Program, program))
		d.inbox.add(result{p, 0, func(*decoder) bool {
			reported = append(reported, i)
			return true
		}})
	}
	d.inbox.take(d, 1)
	qt.Check(t, qt.DeepEquals(reported, []int{2}))
}

// TestADiscoveryIsOfAProgram: one that has ended is no process, and an earlier program has ended once all its
// records were decoded.
func TestADiscoveryIsOfAProgram(t *testing.T) {
	d := newTestDecoder()
	program := func(execID uint64) kernel.Program { return kernel.Program{PID: 7, ExecID: execID} }
	d.kernel = &testKernel{ended: map[kernel.Program]bool{program(1): true, program(3): true}}
	discover := func(execID uint64) bool {
		return d.discovered(&find.Discovery{
			Program: program(execID), Library: d.libraries.At(0), AtNs: 100, Description: find.Description{Start: event.Event{Kind: event.ProcessStart, PID: 7, TimeNs: 90}},
		})
	}
	qt.Check(t, qt.IsTrue(discover(1)))
	qt.Check(t, qt.HasLen(d.processes, 0))
	first := d.add(program(1), 0)
	qt.Check(t, qt.IsFalse(discover(2)))
	qt.Check(t, qt.Equals(d.processes[7], first))
	d.known = 100
	qt.Check(t, qt.IsTrue(discover(2)))
	qt.Check(t, qt.Equals(d.processes[7].ExecID, 2))
	qt.Check(t, qt.IsTrue(discover(2)))
	qt.Check(t, qt.IsTrue(discover(1)))
	qt.Check(t, qt.IsTrue(discover(3)))
	qt.Check(t, qt.Equals(d.processes[7].ExecID, 2))
}

// TestAProgramThatEndedBeforeItsDiscoveryIsALoss: it mapped its library while it was traced, and nobody knows what it did.
func TestAProgramThatEndedBeforeItsDiscoveryIsALoss(t *testing.T) {
	for _, missed := range []bool{false, true} {
		d := newTestDecoder()
		ended := kernel.Program{PID: 7, ExecID: 1}
		d.kernel = &testKernel{ended: map[kernel.Program]bool{ended: true}}
		qt.Check(t, qt.IsTrue(d.discovered(&find.Discovery{Program: ended, Library: d.libraries.At(0), AtNs: 100, Missed: missed})))
		var causes []string
		d.reportLosses()
		d.queue.Release(finished, func(e *event.Event) {
			if e.Kind == event.Lost {
				causes = append(causes, e.Cause)
			}
		})
		qt.Check(t, qt.DeepEquals(causes, map[bool][]string{true: {find.EndedBefore}}[missed]))
	}
}

// TestResultsDoNotWaitForSilence: while records come without a pause, a result is taken once all records
// from before it were decoded.
func TestResultsDoNotWaitForSilence(t *testing.T) {
	d := newTestDecoder()
	d.newest = 1e9
	var taken []uint64
	for _, atNs := range []uint64{0, 0.98e9, 0.995e9, 1.5e9} {
		d.inbox.add(result{atNs: atNs, report: func(*decoder) bool {
			taken = append(taken, atNs)
			return true
		}})
	}
	d.emit(event.Event{TimeNs: 1.5e9}) // found meanwhile, not by a record
	var passed []uint64
	handle := func(e *event.Event) { passed = append(passed, e.TimeNs) }
	untilNs := d.tick(2e9, false, 0)
	qt.Check(t, qt.Equals(untilNs, 0.99e9), qt.Commentf("records of 1.2 s may be still to come"))
	d.release(untilNs, handle)
	qt.Check(t, qt.HasLen(passed, 0))
	qt.Check(t, qt.DeepEquals(taken, []uint64{0, 0.98e9}))
	d.release(d.tick(2e9, true, 0), handle)
	qt.Check(t, qt.DeepEquals(passed, []uint64{1.5e9}))
	qt.Check(t, qt.HasLen(taken, 4))
	d.inbox.add(result{atNs: 2e9, report: func(*decoder) bool {
		taken = append(taken, 2e9)
		return true
	}})
	qt.Check(t, qt.Equals(d.tick(2e9, true, 2e9), finished))
	qt.Check(t, qt.HasLen(taken, 5), qt.Commentf("at the end, nothing is left"))
}
