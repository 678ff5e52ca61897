package tracer

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/layout"
)

// awaitReads waits until the reads of all processes but some are done.
func awaitReads(d *decoder, but ...int) {
	for busy := true; busy; time.Sleep(time.Millisecond) {
		d.reads.mu.Lock()
		busy = false
		for pid, p := range d.processes {
			busy = busy || len(p.reads) > 0 && !slices.Contains(but, pid)
		}
		d.reads.mu.Unlock()
	}
}

// A read that does not return delays neither other processes' results nor, for more than a
// moment, events.
func TestReadsOfProcesses(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	d := newTestDecoder()
	r := d.reads
	r.ctx = ctx
	take := func(until uint64) { r.inbox.take(d, until) }
	var reported []int
	add := func(pid int, timeNs uint64, result int) {
		qt.Assert(t, qt.IsTrue(r.add(d.process(pid), timeNs, func(ctx context.Context, _ host.ReadableProcess) func() {
			if result == 0 {
				<-ctx.Done()
			}
			return func() { reported = append(reported, result) }
		})))
	}
	qt.Check(t, qt.Equals(r.waitingSince(), math.MaxUint64))
	add(7, 100, 0)
	add(7, 101, 71)
	add(8, 90, 81)
	add(8, 110, 82)
	qt.Check(t, qt.Equals(r.waitingSince(), 90))
	awaitReads(d, 7)
	take(0)
	qt.Check(t, qt.HasLen(reported, 0), qt.Commentf("records from before the read may still come"))
	qt.Check(t, qt.Equals(r.waitingSince(), 90))
	take(host.Now())
	qt.Check(t, qt.DeepEquals(reported, []int{81, 82}))
	qt.Check(t, qt.Equals(r.waitingSince(), 100))
	time.Sleep(resultPatienceNs)
	qt.Check(t, qt.Equals(r.waitingSince(), math.MaxUint64))
	add(7, 120, 72)
	qt.Check(t, qt.Equals(r.waitingSince(), math.MaxUint64), qt.Commentf("it did not answer before"))
	stop()
	awaitReads(d)
	take(host.Now())
	qt.Check(t, qt.DeepEquals(reported, []int{81, 82, 0, 71, 72}))
}

// A program that cannot be read is a loss of its process, and so is one that has released its
// memory meanwhile.
func TestUnreadableProgram(t *testing.T) {
	pid := uint32(os.Getpid())
	seen := bpf.KernelProgramSeenRecord{ProgramId: 7}
	seen.H = bpf.KernelHeader{TimeNs: 1, Tgid: pid, Tid: pid, Kind: bpf.RecordProgramSeen, Flags: bpf.ProgramCBs}
	end := bpf.KernelProgramEndRecord{ProgramId: 7}
	end.H = bpf.KernelHeader{TimeNs: 2, Tgid: pid, Tid: pid, Kind: bpf.RecordProgramEnd, Flags: bpf.ProgramCBs}
	for _, c := range []struct {
		name    string
		between func(*decoder)
		cause   string
	}{
		{"it is there", func(*decoder) {}, books.ProgramUnread},
		{"it has ended", func(d *decoder) { d.decode(raw(&end)) }, books.ProgramGone},
		{"another one has", func(d *decoder) { other := end; other.ProgramId = 8; d.decode(raw(&other)) }, books.ProgramUnread},
		{"its process has ended", func(d *decoder) { d.end(d.process(int(pid)), event.Event{}) }, books.ProgramGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newTestDecoder() // which knows no field of programs
			d.decode(raw(&seen))
			awaitReads(d)
			c.between(d)
			d.reads.inbox.take(d, host.Now())
			d.reportLosses()
			lost := slices.DeleteFunc(lossesOf(d), func(e event.Event) bool { return e.Kind != event.Lost })
			qt.Assert(t, qt.HasLen(lost, 1))
			qt.Check(t, qt.Equals(lost[0].Cause, c.cause))
		})
	}
	d := newTestDecoder()
	d.decode(raw(&seen))
	awaitReads(d)
	d.process(int(pid)).EndReads(books.ProgramUnread)
	qt.Check(t, qt.Equals(d.lost()[loss{int(pid), books.ProgramUnread}].n, 1), qt.Commentf("tracing ended before"))
}

// What is read of a program is reported as its record says, which is gone by then.
func TestProgramIsReadLater(t *testing.T) {
	tracetest.NeedsRoot(t)
	readers := host.NewReaders()
	defer readers.Close()
	d := newTestDecoder()
	d.reads.ctx, d.reads.readers = t.Context(), readers
	fields := d.libraries.At(0).Layout.Fields
	fields["ProgramImpl.id"], fields["ProgramImpl.binary_data(begin)"] = layout.Chain{0}, layout.Chain{8}
	pid := os.Getpid()
	impl := []uint64{7, 1000, 1400}
	var pin runtime.Pinner
	pin.Pin(&impl[0])
	defer pin.Unpin()
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Chips: [len(bpf.KernelDeviceRecord{}.Chips)]int32{4}}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordDevice, Count: 1}
	d.decode(raw(&dev))
	seen := bpf.KernelProgramSeenRecord{ProgramId: 7, Device: 0x1000, Impl: uint64(uintptr(unsafe.Pointer(&impl[0])))}
	seen.H = bpf.KernelHeader{TimeNs: 5, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordProgramSeen, Flags: bpf.ProgramKernels}
	d.decode(raw(&seen))
	seen = bpf.KernelProgramSeenRecord{}
	d.decode(raw(&bpf.KernelProgramEndRecord{H: bpf.KernelHeader{
		TimeNs: 6, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordProgramEnd, Flags: bpf.ProgramKernels,
	}, ProgramId: 8}))
	awaitReads(d)
	d.reads.inbox.take(d, host.Now())
	qt.Check(t, qt.HasLen(d.lost(), 0))
	load := d.queue.Events[len(d.queue.Events)-1]
	qt.Check(t, qt.Equals(load.Kind, event.KernelLoad))
	qt.Check(t, qt.Equals(load.TimeNs, 5))
	qt.Check(t, qt.Equals(load.ProgramID, 7))
	qt.Check(t, qt.DeepEquals(load.Devices, []int{4}))
	qt.Check(t, qt.Equals(load.SizeBytes, 400))
	qt.Check(t, qt.IsTrue(load.BeforeAttach))
}

// TestCommandLineComesLater: with the start of its process while that is not released, and else with
// another one.
func TestCommandLineComesLater(t *testing.T) {
	d := newTestDecoder()
	starts := func() (list []string) {
		for _, e := range d.queue.Events {
			if e.Kind == event.ProcessStart {
				list = append(list, fmt.Sprint(e.PID, e.Start.Command, e.Reread))
			}
		}
		return list
	}
	first := d.process(7)
	d.begin(first, 1)
	qt.Check(t, qt.DeepEquals(starts(), []string{"7false"}))
	d.setCommand(first, "python model.py")
	qt.Check(t, qt.DeepEquals(starts(), []string{"7python model.pyfalse"}))

	second := d.process(8)
	d.begin(second, 2)
	d.setCommand(second, "")
	d.release(finished, func(*event.Event) {})
	d.newest = commandNs - 1
	d.readCommandsAgain()
	qt.Check(t, qt.Not(qt.Equals(second.commandNs, 0)), qt.Commentf("not yet"))
	d.newest = commandNs + 1
	d.readCommandsAgain()
	qt.Check(t, qt.Equals(second.commandNs, 0))
	d.setCommand(second, "python other.py")
	qt.Check(t, qt.DeepEquals(starts(), []string{"8python other.pytrue"}))
}

// TestIdentityIsReadMeanwhile: events wait for the identity of their process and the names of its threads,
// also if it ends meanwhile.
func TestIdentityIsReadMeanwhile(t *testing.T) {
	d := newTestDecoder()
	tracetest.NeedsRoot(t)
	const user = 54321
	sleeps := exec.Command("sleep", "600")
	sleeps.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user}, Pdeathsig: syscall.SIGKILL}
	qt.Assert(t, qt.IsNil(sleeps.Start()))
	defer func() {
		sleeps.Process.Kill()
		sleeps.Wait()
	}()
	pid := sleeps.Process.Pid
	p := d.process(pid)
	atNs := host.Now()
	d.mark(p, event.Event{TimeNs: atNs, PID: pid, TID: pid}, markRecord("step"))
	r := bufferRecord(atNs+1, 0x1000, 1)
	r.H.Tgid, r.H.Tid = uint32(pid), uint32(pid)
	d.decode(raw(r))
	qt.Check(t, qt.Equals(d.reads.waitingSince(), atNs))
	d.end(p, event.Event{TimeNs: atNs + 2})
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool {
		d.inbox.take(d, host.Now())
		return d.reads.waitingSince() == math.MaxUint64
	})))
	seen := 0
	for _, e := range d.queue.Events {
		switch e.Kind {
		case event.Mark:
			seen++
			qt.Check(t, qt.Equals(e.UID, user))
		case event.ProcessStart:
			seen++
			qt.Check(t, qt.Equals(e.UID, user))
			qt.Check(t, qt.Equals(e.Comm, "sleep"))
		case event.Alloc:
			seen++
			qt.Check(t, qt.Equals(e.Comm, "sleep"))
		}
	}
	qt.Check(t, qt.Equals(seen, 3))
	qt.Check(t, qt.Equals(p.user, user))
	qt.Check(t, qt.Equals(p.naming, 0))
}

// TestNamesOfThreadsAreReadMeanwhile: their events that wait get them, and not those of an earlier program
// with the same ids. Of a process with ever new threads some names at a time are read.
func TestNamesOfThreadsAreReadMeanwhile(t *testing.T) {
	d := newTestDecoder()
	pid := os.Getpid()
	d.emit(event.Event{Kind: event.Alloc, TimeNs: 3, PID: pid, TID: pid, Comm: "earlier"})
	p := d.process(pid)
	p.described, p.start.Comm = true, "program"
	for _, tid := range []int{pid, 1 << 30, 1<<30 + 1} {
		p.Emit(&event.Event{Kind: event.Alloc, TimeNs: 5, PID: pid, TID: tid})
	}
	qt.Check(t, qt.Equals(d.reads.waitingSince(), 5))
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool {
		d.inbox.take(d, host.Now())
		return p.naming == 0
	})))
	d.rename()
	var names []string
	for _, e := range d.queue.Events {
		names = append(names, e.Comm)
	}
	own := host.ThreadName(pid, pid)
	qt.Check(t, qt.DeepEquals(names, []string{"earlier", own, own, own}), qt.Commentf("a thread that ended has the name of its process"))
	for tid := range 2 * maxNaming {
		p.Emit(&event.Event{Kind: event.Alloc, TimeNs: 6, PID: pid, TID: 1<<29 + tid})
	}
	qt.Check(t, qt.Equals(p.naming, maxNaming))
}
