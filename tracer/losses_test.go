package tracer

import (
	"maps"
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/kernel"
)

func lossesOf(d *decoder) (list []event.Event) {
	for _, e := range d.queue.events {
		list = append(list, event.Event{TimeNs: e.TimeNs, Kind: e.Kind, PID: e.PID, Count: e.Count, Cause: e.Cause})
	}
	return list
}

// TestLossesHaveProcesses: what a process lost is reported with its id, and after its start.
func TestLossesHaveProcesses(t *testing.T) {
	d := newTestDecoder()
	pid := os.Getpid()
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Tgid: uint32(pid), ExecId: 5, Cause: uint32(bpf.KernelLostCauseLOST_RING_FULL)}: {Count: 3, TimeNs: 20},
	}}
	d.countLosses()
	d.reportLosses()
	qt.Check(t, qt.DeepEquals(lossesOf(d), []event.Event{
		{TimeNs: 20, Kind: event.ProcessStart, PID: pid},
		{TimeNs: 20, Kind: event.Lost, PID: pid, Count: 3, Cause: "ring buffer full"},
	}))
	qt.Check(t, qt.HasLen(d.lost(), 0))
}

// TestLossesOfAUsersProcesses: what the kernel side could not count for each process of a user is
// reported for all of them, and not for others.
func TestLossesOfAUsersProcesses(t *testing.T) {
	d := newTestDecoder()
	const loud, quiet = 1000, 2000
	for pid, user := range map[int]int{1: loud, 2: loud, 3: quiet} {
		d.process(pid).user = user
	}
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Uid: loud, Cause: uint32(bpf.KernelLostCauseLOST_OF_USER)}: {Count: 3, TimeNs: 20},
		{Uid: 3000, Cause: uint32(bpf.KernelLostCauseLOST_OF_USER)}: {Count: 4},
		{Cause: uint32(bpf.KernelLostCauseLOST_CAUSES)}:             {Count: 2},
	}}
	d.countLosses()
	const cause = "its user's processes lost too many events to count for each"
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), map[loss]lossCount{
		{1, cause}: {3, 20}, {2, cause}: {3, 20},
		{0, cause}: {4, 0}, // of no process that is known
		{0, "too many processes lost events to count each"}: {2, 0},
	})), qt.Commentf("%v", d.lost()))
}

// TestLossesOfAnEndedProcess: losses of a program are its own, and the exec_id of later ones says that they
// are those of another program.
func TestLossesOfAnEndedProcess(t *testing.T) {
	d := newTestDecoder()
	const pid = 1 << 30 // of no process
	cause := uint32(bpf.KernelLostCauseLOST_BUFFER_UNREADABLE)
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Tgid: pid, ExecId: 5, Cause: cause}: {Count: 1, TimeNs: 20},
		{Tgid: pid, ExecId: 6, Cause: cause}: {Count: 2, TimeNs: 40},
		{Tgid: pid, ExecId: 4, Cause: cause}: {Count: 3, TimeNs: 10}, // nothing else is known of it
	}}
	p := d.add(kernel.Program{PID: pid, ExecID: 5}, 0)
	d.unknown(p, "library not known")
	end := bpf.KernelProcessRecord{H: bpf.KernelHeader{TimeNs: 30, Tgid: pid, Tid: pid, ExecId: 5, Kind: bpf.RecordExit}}
	d.decode(raw(&end))
	list := lossesOf(d)
	qt.Assert(t, qt.HasLen(list, 4))
	qt.Check(t, qt.Equals(list[0].Kind, event.ProcessStart))
	qt.Check(t, qt.ContentEquals(list[1:3], []event.Event{
		{TimeNs: 30, Kind: event.Lost, PID: pid, Count: 1, Cause: "buffer not readable"},
		{TimeNs: 30, Kind: event.Lost, PID: pid, Count: 1, Cause: "library not known"},
	}))
	qt.Check(t, qt.DeepEquals(list[3], event.Event{TimeNs: 30, Kind: event.ProcessExit, PID: pid}))
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), map[loss]lossCount{{0, "buffer not readable"}: {3, 10}})), qt.Commentf("%v", d.lost()))
	d.known = 50
	d.countLosses()
	qt.Check(t, qt.Equals(d.process(pid).ExecID, 6))
	qt.Check(t, qt.Equals(d.lost()[loss{pid, "buffer not readable"}], lossCount{2, 40}))
}
