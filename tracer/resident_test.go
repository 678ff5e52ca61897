package tracer

import (
	"os"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// TestHostMemoryIsReportedWhenItChanges: the first sample, and then those that differ by a MiB.
func TestHostMemoryIsReportedWhenItChanges(t *testing.T) {
	const step = residentStep
	var r resident
	for i, sample := range []struct {
		now, most uint64
		reported  bool
	}{
		{10 * step, 10 * step, true},
		{10*step + step - 1, 10*step + step - 1, false},
		{9*step + 1, 10*step + step - 1, false},
		{11 * step, 11 * step, true}, // since what was reported, not since the sample before
		{10 * step, 11 * step, true},
		{10 * step, 12 * step, true}, // it was more in between
		{10 * step, 12 * step, false},
	} {
		qt.Check(t, qt.Equals(r.changed(sample.now, sample.most), sample.reported), qt.Commentf("sample %d", i))
	}
}

// takeSamples waits until all processes have been read.
func (d *decoder) takeSamples() {
	for d.residentNs == finished {
		runtime.Gosched()
		d.inbox.take(d, finished)
	}
}

// TestHostMemoryOfProcesses: each process that was reported is read ten times a second, this one with its real figures, and not a
// program whose process runs another one by now.
func TestHostMemoryOfProcesses(t *testing.T) {
	d := newTestDecoder()
	own, gone := os.Getpid(), 1<<30
	d.resident = func(pid int) (now, most uint64, ok bool) {
		if pid == gone {
			return 8 << 20, 8 << 20, true
		}
		return host.ResidentMemory(pid)
	}
	d.readResident(1)
	qt.Check(t, qt.Equals(d.residentNs, 0), qt.Commentf("without a process, the next one is read at once"))
	for _, pid := range []int{own, gone} {
		d.begin(d.process(pid), 0)
	}
	d.process(1<<30 + 1) // was not reported
	d.kernel = &testKernel{ended: map[kernel.Program]bool{{PID: gone}: true}}
	d.queue.Events = nil
	d.readResident(1)
	d.takeSamples()
	qt.Assert(t, qt.HasLen(d.queue.Events, 1))
	e := d.queue.Events[0]
	qt.Check(t, qt.Equals(e.Kind, event.HostMemory))
	qt.Check(t, qt.Equals(e.PID, own))
	qt.Check(t, qt.IsTrue(e.SizeBytes > 1<<20 && e.SizeBytes <= e.BytesPerBank), qt.Commentf("%d %d", e.SizeBytes, e.BytesPerBank))
	next := d.residentNs
	d.readResident(next - 1)
	qt.Check(t, qt.Equals(d.residentNs, next), qt.Commentf("not before its time"))
}
