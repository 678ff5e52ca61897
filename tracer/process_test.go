package tracer

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/find"
	"ttmem/tracer/kernel"
)

// TestAProcessHasEndedWhenItsIDIsAnothers: also one whose end the kernel side does not report.
func TestAProcessHasEndedWhenItsIDIsAnothers(t *testing.T) {
	d := newTestDecoder()
	p := d.add(kernel.Program{PID: os.Getpid()}, host.Now())
	p.unlisted = true
	qt.Check(t, qt.IsFalse(d.hasEnded(p)))
	p.sinceNs = 1 // long before this process began
	qt.Check(t, qt.IsTrue(d.hasEnded(p)))
}

func TestSweepEndsProcess(t *testing.T) {
	d := newTestDecoder()
	const ended, runs = 1 << 30, 1<<30 + 1
	for _, pid := range []int{ended, runs} {
		d.begin(d.process(pid), 0)
	}
	d.kernel = &testKernel{ended: map[kernel.Program]bool{{PID: ended}: true}}
	d.queue.Events = nil
	d.sweep(1)
	qt.Check(t, qt.HasLen(d.queue.Events, 0), qt.Commentf("its record may still come"))
	d.sweep(2)
	qt.Assert(t, qt.HasLen(d.queue.Events, 1))
	qt.Check(t, qt.Equals(d.queue.Events[0].Kind, event.ProcessExit))
	qt.Check(t, qt.Equals(d.queue.Events[0].PID, ended))
	qt.Check(t, qt.Equals(d.queue.Events[0].ExitStatus, event.UnknownStatus))
	d.sweep(3)
	qt.Check(t, qt.HasLen(d.queue.Events, 1))
}

// Go's own processors may be held by threads that a busy host does not run. A goroutine with
// raised priority, such as the one that reads new mappings, runs all the same.
func TestUrgentGoroutinesRunBesideOthers(t *testing.T) {
	addProcessors()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would wait for the others
	waiting, release, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer waiting.Close()
	fd := int32(waiting.Fd())
	var others sync.WaitGroup
	var released atomic.Int32
	all := runtime.NumCPU() + 2 // that read files, Run and marks
	for range all {
		others.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			signals := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGURG - 1)}}
			unix.PthreadSigmask(unix.SIG_BLOCK, &signals, nil) // Go wakes threads with it
			end := unix.PollFd{Fd: fd, Events: unix.POLLIN}
			// raw, so that Go does not know that the thread waits
			n, _, _ := unix.RawSyscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&end)), 1, 30_000)
			released.Add(int32(n))
		})
	}
	for range 50 {
		unix.Poll(nil, host.CommandPollMs)
	}
	release.Close()
	others.Wait()
	qt.Check(t, qt.Equals(int(released.Load()), all), qt.Commentf("the others waited for as long as they could"))
}

// A record of a library shows that a process maps it, even if the process ended before its
// mapping was handled.
func TestShortProcess(t *testing.T) {
	d := newTestDecoder()
	qt.Check(t, qt.IsNil(d.libraryOf(d.process(7), 1)))
	qt.Check(t, qt.IsFalse(d.libraries.Seen.Load()))
	qt.Check(t, qt.IsNotNil(d.libraryOf(d.process(7), 0)))
	qt.Check(t, qt.IsTrue(d.libraries.Seen.Load()))
}

// A command may end before it is known to use tt-metal: it is who it was when it executed its program.
func TestWhoAShortCommandIs(t *testing.T) {
	program := tracetest.Start(t, "sh", "-c", "echo ready; read end")
	pid := program.Process.Pid
	d := newTestDecoder()
	d.Processes = []int{pid}
	d.exec(kernel.Program{PID: pid, ExecID: 1}, host.Now())
	p := d.processes[pid]
	known := tracetest.Eventually(time.Minute, func() bool {
		d.inbox.take(d, math.MaxUint64)
		return p.early != nil
	})
	qt.Assert(t, qt.IsTrue(known))
	qt.Assert(t, qt.IsNil(program.Process.Kill()))
	_ = program.Wait()
	d.begin(p, host.Now())
	qt.Check(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool {
		d.inbox.take(d, math.MaxUint64)
		return p.described
	})))
	qt.Check(t, qt.Equals(p.start.Comm, "sh"))
	qt.Check(t, qt.Equals(p.user, os.Getuid()))
}

// A file beside the library that is read when its process has ended costs the process no events. A library
// that is not traced costs it one, and the process does not start again.
func TestAFileIsReadWhenItsProcessHasEnded(t *testing.T) {
	for _, c := range []struct {
		beside         bool
		ended          int // a process that mapped the library
		losses, starts int
	}{
		{true, 7, 0, 0},
		{true, 8, 1, 1},
		{false, 7, 1, 0},
	} {
		d := newTestDecoder()
		p := d.process(c.ended)
		p.library = d.libraries.At(0)
		d.end(p, event.Event{})
		d.inbox.Lost(&find.Loss{Program: kernel.Program{PID: 7}, Beside: c.beside, Cause: find.EndedBefore, AtNs: 5})
		losses, starts := 0, 0
		count := func() {
			d.reportLosses()
			d.release(math.MaxUint64, func(e *event.Event) {
				switch {
				case e.Kind == event.Lost && e.PID == 7 && e.Cause == find.EndedBefore:
					losses += int(e.Count)
				case e.Kind == event.ProcessStart:
					starts++
				}
			})
		}
		d.inbox.take(d, 4)
		count()
		qt.Check(t, qt.Equals(losses, 0), qt.Commentf("earlier records may still come"))
		d.inbox.take(d, 5)
		count()
		qt.Check(t, qt.Equals(losses, c.losses), qt.Commentf("%+v", c))
		qt.Check(t, qt.Equals(starts, c.starts), qt.Commentf("%+v", c))
	}
}
