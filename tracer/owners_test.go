package tracer

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
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
	searched := func() []int { return d.searched(10) }
	var got []int
	d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, markRecord("step"))
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { got = append(got, searched()...); return len(got) == 1 })))
	qt.Check(t, qt.DeepEquals(got, []int{7}))
	d.wantAtMark(nil, 0)
	got = nil
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { got = append(got, searched()...); return len(got) == 2 })))
	qt.Check(t, qt.ContentEquals(got, []int{7, 8}))
}

// searched begins searches, and returns the processes whose searches ended since the last call.
func (d *decoder) searched(nowNs uint64) (pids []int) {
	d.searches.Begin(nowNs)
	d.inbox.take(d, finished)
	d.release(finished, func(e *event.Event) {
		if e.Kind == event.Owner {
			pids = append(pids, e.PID)
		}
	})
	return pids
}

// TestOwnersForUsers: a service searches the processes of the users who want it, at new peaks and at marks, until they want it
// no more.
func TestOwnersForUsers(t *testing.T) {
	d := newTestDecoder()
	tr := &Tracer{decoder: d}
	nowNs := host.Now()
	for _, pid := range []uint32{7, 8} {
		r := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
		r.H = bpf.KernelHeader{TimeNs: 1, Tgid: pid, Tid: pid, Kind: bpf.RecordDevice, Count: 1}
		r.Banks[event.DRAM] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 1, AlignmentBytes: 16}
		d.decode(raw(&r))
	}
	allocate := func(object uint64) {
		for _, pid := range []uint32{7, 8} {
			r := bufferRecord(2, object, object)
			r.H.Tgid, r.H.Tid = pid, pid
			d.decode(raw(r))
			p := d.process(int(pid))
			p.described, p.start.UID = true, int(pid)*1000
		}
	}
	// want has these processes searched, and no others.
	want := func(do string, pids ...int) {
		t.Helper()
		d.inbox.take(d, finished)
		for range 2 { // memory has not grown between the two
			nowNs += 1e9
			d.wantAtPeaks(nowNs)
		}
		var got []int
		qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool {
			got = append(got, d.searched(host.Now())...)
			return len(got) >= len(pids)
		})), qt.Commentf("%s", do))
		qt.Check(t, qt.ContentEquals(got, pids), qt.Commentf("%s", do))
	}
	peak := func() {
		for range 10 {
			allocate(0x1000 + nowNs)
			nowNs++
		}
	}
	peak()
	want("nobody asked")
	stopPeaks := tr.SearchFor(7000, false)
	want("the peak before", 7)
	peak()
	want("a peak", 7)
	tr.Mark("of a user who did not ask for marks", 7000, 7000)
	want("a mark")
	stopMarks := tr.SearchFor(8000, true)
	want("the peak of another", 8)
	tr.Mark("of the other", 8000, 8000)
	tr.Mark("shares its search", 8000, 8000)
	tr.Mark("of none of them", 9000, 9000)
	want("marks", 8)
	want("nothing")
	d.mark(d.process(8), event.Event{TimeNs: 5, PID: 8, TID: 8}, markRecord("step"))
	d.mark(d.process(7), event.Event{TimeNs: 5, PID: 7, TID: 7}, markRecord("step"))
	want("marks of the programs", 8)
	stopMarks()
	again := tr.SearchFor(7000, false)
	stopPeaks()
	peak()
	want("one of two asks still", 7)
	again()
	peak()
	tr.Mark("too late", 8000, 8000)
	want("nobody asks any more")
	qt.Check(t, qt.HasLen(d.asked, 0))
}
