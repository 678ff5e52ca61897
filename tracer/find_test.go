package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
)

// noProbes replaces the probes of a library that no process runs.
type noProbes struct{}

func (noProbes) Close() error { return nil }

func TestUnmappedDeletedLibrariesAreRetired(t *testing.T) {
	traced := &libraries{byFile: make(map[host.FileID]*library)}
	add := func(name string, deleted, mapped bool) *library {
		path := filepath.Join(t.TempDir(), name)
		qt.Assert(t, qt.IsNil(os.WriteFile(path, make([]byte, 8192), 0o700)))
		file, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { file.Close() })
		id, err := host.FileIDOf(file)
		qt.Assert(t, qt.IsNil(err))
		if mapped {
			mem, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
			qt.Assert(t, qt.IsNil(err))
			t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Munmap(mem))) })
		}
		if deleted {
			qt.Assert(t, qt.IsNil(os.Remove(path)))
		}
		l := &library{Library: &heap.Library{Path: path}, file: file, probes: noProbes{}}
		traced.list = append(traced.list, l)
		traced.byFile[id] = l
		return l
	}
	there := add("there", false, false)
	running := add("running", true, true)
	gone := add("gone", true, false)
	traced.retire()
	qt.Check(t, qt.IsNotNil(there.probes))
	qt.Check(t, qt.IsNotNil(running.probes))
	qt.Check(t, qt.IsNil(gone.probes))
	qt.Check(t, qt.HasLen(traced.byFile, 2))
	qt.Check(t, qt.Equals(traced.slot(), 3), qt.Commentf("its records may still come"))
	gone.retiredNs -= 2 * retiredNs
	qt.Check(t, qt.Equals(traced.slot(), 2))
}

func TestSweepEndsProcess(t *testing.T) {
	d := newTestDecoder()
	command := exec.Command("true")
	qt.Assert(t, qt.IsNil(command.Run()))
	for _, pid := range []int{command.Process.Pid, os.Getpid()} {
		d.start(&event.Event{PID: pid, TID: pid}, nil)
	}
	d.queue.events = nil
	d.sweep(1, nil)
	qt.Check(t, qt.HasLen(d.queue.events, 0), qt.Commentf("its record may still come"))
	d.sweep(2, nil)
	qt.Assert(t, qt.HasLen(d.queue.events, 1))
	qt.Check(t, qt.Equals(d.queue.events[0].Kind, event.ProcessExit))
	qt.Check(t, qt.Equals(d.queue.events[0].PID, command.Process.Pid))
	qt.Check(t, qt.Equals(d.queue.events[0].ExitStatus, event.UnknownStatus))
	d.sweep(3, nil)
	qt.Check(t, qt.HasLen(d.queue.events, 1))
}
