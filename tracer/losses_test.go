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
	for _, e := range d.queue.Events {
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
// reported for all of them, and not for others. It waits until one is known. If they have ended, the user is warned, and
// nobody's totals are in doubt.
func TestLossesOfAUsersProcesses(t *testing.T) {
	d := newTestDecoder()
	const loud, quiet, late, gone = 1000, 2000, 3000, 4000
	warned := make(map[int]string)
	d.Warn = func(user int, text string) { warned[user] = text }
	for pid, user := range map[int]int{1: loud, 2: loud, 3: quiet} {
		d.process(pid).user = user
	}
	ofUser := uint32(bpf.KernelLostCauseLOST_OF_USER)
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Uid: loud, Cause: ofUser}:                      {Count: 3, TimeNs: 20},
		{Uid: late, Cause: ofUser}:                      {Count: 4, TimeNs: 20},
		{Uid: gone, Cause: ofUser}:                      {Count: 5, TimeNs: 20},
		{Cause: uint32(bpf.KernelLostCauseLOST_CAUSES)}: {Count: 2},
	}}
	d.known = 19 + userLossNs
	d.countLosses()
	const cause = "its user's processes lost too many events to count for each"
	want := map[loss]lossCount{
		{1, cause}: {3, 20}, {2, cause}: {3, 20},
		{0, "too many processes lost events to count each"}: {2, 0},
	}
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), want)), qt.Commentf("%v", d.lost()))
	qt.Check(t, qt.HasLen(warned, 0))

	d.process(4).user = late
	d.known++
	d.countLosses()
	want[loss{4, cause}] = lossCount{4, 20}
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), want)), qt.Commentf("%v", d.lost()))
	qt.Check(t, qt.DeepEquals(warned, map[int]string{gone: "lost 5 events of processes that have ended: " + cause}))
	qt.Check(t, qt.HasLen(d.kernelLosses, 0))
}

// TestLossesBeforeAnExec: a program of which nothing but a loss is known is reported with that, and not as nobody, when
// its process executes the next one.
func TestLossesBeforeAnExec(t *testing.T) {
	d := newTestDecoder()
	const pid = 1 << 30 // of no process
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Tgid: pid, ExecId: 5, Cause: uint32(bpf.KernelLostCauseLOST_BUFFER_UNREADABLE)}: {Count: 3, TimeNs: 20},
	}}
	d.decode(raw(&bpf.KernelProcessRecord{H: bpf.KernelHeader{TimeNs: 30, Tgid: pid, Tid: pid, ExecId: 6, Kind: bpf.RecordExec}}))
	qt.Check(t, qt.DeepEquals(lossesOf(d), []event.Event{
		{TimeNs: 30, Kind: event.ProcessStart, PID: pid},
		{TimeNs: 30, Kind: event.Lost, PID: pid, Count: 3, Cause: "buffer not readable"},
		{TimeNs: 30, Kind: event.ProcessExit, PID: pid},
	}))
	qt.Check(t, qt.Equals(d.process(pid).ExecID, 6))
	qt.Check(t, qt.HasLen(d.lost(), 0))
}

// TestLossesOfAPIDHaveAProcess: what has a process's id is never counted as nobody's: also if the process is not known, has
// no address space any more, or already runs another program.
func TestLossesOfAPIDHaveAProcess(t *testing.T) {
	d := newTestDecoder()
	const known, unknown = 1 << 30, 1<<30 + 1 // of no process
	d.add(kernel.Program{PID: known, ExecID: 5}, 0)
	unreadable := uint32(bpf.KernelLostCauseLOST_BUFFER_UNREADABLE)
	d.kernel = &testKernel{losses: map[bpf.KernelLossKey]bpf.KernelLoss{
		{Tgid: known, ExecId: 4, Cause: unreadable}: {Count: 1, TimeNs: 20},
		{Tgid: known}:   {Count: 2, TimeNs: 30},
		{Tgid: unknown}: {Count: 3, TimeNs: 40},
	}}
	d.countLosses()
	mark := markRecord("step")
	h := bpf.As[bpf.KernelHeader](mark)
	h.Tgid, h.ExecId = known, 4
	d.decode(mark)
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), map[loss]lossCount{
		{known, "buffer not readable"}: {1, 20}, {known, "ring buffer full"}: {2, 30}, {unknown, "ring buffer full"}: {3, 40},
		{known, "record of a program that has ended"}: {1, 0},
	})), qt.Commentf("%v", d.lost()))
	qt.Check(t, qt.Equals(d.process(known).ExecID, 5))
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
	qt.Check(t, qt.HasLen(d.lost(), 0))
	d.known = 50
	d.countLosses()
	qt.Check(t, qt.Equals(d.process(pid).ExecID, 6))
	qt.Check(t, qt.Equals(d.lost()[loss{pid, "buffer not readable"}], lossCount{2, 40}))
}
