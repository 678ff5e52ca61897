package tracer

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
)

// noProbes replaces the probes of a library that no process runs.
type noProbes struct{}

func (noProbes) Close() error { return nil }

var probed = kernel.ProbedFile{Probes: noProbes{}}

func TestSweepEndsProcess(t *testing.T) {
	d := newTestDecoder()
	const ended, runs = 1 << 30, 1<<30 + 1
	for _, pid := range []int{ended, runs} {
		d.start(d.process(pid), &event.Event{TID: pid})
	}
	d.kernel = &testKernel{ended: map[kernel.Program]bool{{PID: ended}: true}}
	d.queue.events = nil
	d.sweep(1)
	qt.Check(t, qt.HasLen(d.queue.events, 0), qt.Commentf("its record may still come"))
	d.sweep(2)
	qt.Assert(t, qt.HasLen(d.queue.events, 1))
	qt.Check(t, qt.Equals(d.queue.events[0].Kind, event.ProcessExit))
	qt.Check(t, qt.Equals(d.queue.events[0].PID, ended))
	qt.Check(t, qt.Equals(d.queue.events[0].ExitStatus, event.UnknownStatus))
	d.sweep(3)
	qt.Check(t, qt.HasLen(d.queue.events, 1))
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
// mapping was handled. Known libraries are handled before other files.
func TestShortProcess(t *testing.T) {
	d := newTestDecoder()
	f := newFinder(nil, d)
	qt.Check(t, qt.IsNil(d.libraryOf(d.process(7), 1)))
	qt.Check(t, qt.IsFalse(f.seenAny.Load()))
	qt.Check(t, qt.IsNotNil(d.libraryOf(d.process(7), 0)))
	qt.Check(t, qt.IsTrue(f.seenAny.Load()))

	mapping := func(inode uint64) host.NewMapping {
		return host.NewMapping{PID: int(inode), File: host.FileID{Inode: inode}}
	}
	f.libraries.Remember(mapping(2).File, &libraries.Library{ProbedFile: probed})
	f.libraries.Remember(mapping(3).File, nil)
	list := f.knownFirst([]host.NewMapping{mapping(1), mapping(2), mapping(3), mapping(2)})
	qt.Check(t, qt.DeepEquals(list, []host.NewMapping{mapping(2), mapping(2), mapping(1), mapping(3)}))
}
