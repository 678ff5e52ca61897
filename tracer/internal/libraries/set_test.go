package libraries

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/kernel"
)

// noProbes replaces the probes of a library that no process runs.
type noProbes struct{}

func (noProbes) Close() error { return nil }

var probed = kernel.ProbedFile{Probes: noProbes{}}

func TestUnmappedDeletedLibrariesAreRetired(t *testing.T) {
	traced := New(nil, nil, new(host.Proc), func(int, string) {})
	add := func(name string, deleted, mapped bool) *Library {
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
		l := &Library{Library: &heap.Library{Path: path}, ProbedFile: kernel.ProbedFile{File: file, Probes: noProbes{}}}
		traced.list = append(traced.list, l)
		traced.byFile[id] = l
		return l
	}
	there := add("there", false, false)
	running := add("running", true, true)
	gone := add("gone", true, false)
	traced.retire(false)
	qt.Check(t, qt.IsNotNil(there.Probes))
	qt.Check(t, qt.IsNotNil(running.Probes))
	qt.Check(t, qt.IsNil(gone.Probes))
	qt.Check(t, qt.HasLen(traced.byFile, 2))
	qt.Check(t, qt.Equals(traced.slot(0), 3), qt.Commentf("its records may still come"))
	gone.retiredNs.Store(1)
	qt.Check(t, qt.Equals(traced.slot(0), 2))
}

// A user has half of the slots that others leave. What root and other users have stays.
func TestLibrarySlotsAreShared(t *testing.T) {
	traced := New(nil, nil, new(host.Proc), func(int, string) {})
	fill := func(user int) (n int) {
		for ; ; n++ {
			slot := traced.slot(user)
			if slot < 0 {
				return n
			}
			qt.Assert(t, qt.Equals(slot, len(traced.list)))
			traced.list = append(traced.list, &Library{user: user, ProbedFile: probed})
		}
	}
	qt.Check(t, qt.Equals(fill(1), 32))
	qt.Check(t, qt.Equals(fill(2), 16))
	qt.Check(t, qt.Equals(fill(1), 0))
	qt.Check(t, qt.Equals(fill(3), 8))
	traced.list[5].Probes = nil
	traced.list[5].retiredNs.Store(1)
	qt.Check(t, qt.Equals(traced.slot(2), -1))
	qt.Check(t, qt.Equals(traced.slot(1), -1), qt.Commentf("others have more than before"))
	qt.Check(t, qt.Equals(traced.slot(4), 5))
	traced.list[5].Probes = noProbes{}
	traced.list[5].retiredNs.Store(0)
	qt.Check(t, qt.Equals(fill(0), 8))
}

// A user has as many traced processes as one may have; each of root counts as a user.
func TestProcessesAreShared(t *testing.T) {
	s := New(nil, nil, new(host.Proc), func(int, string) {})
	l := &Library{ProbedFile: probed}
	fill := func(user, from int) (n int) {
		for ; n < 2*bpf.ProcessesAUser; n++ {
			if _, err := s.Join(kernel.Program{PID: from + n}, l, user); err != nil {
				qt.Check(t, qt.ErrorIs(err, ErrManyProcesses))
				break
			}
		}
		return n
	}
	qt.Check(t, qt.Equals(fill(1, 1<<20), bpf.ProcessesAUser))
	qt.Check(t, qt.Equals(fill(2, 2<<20), bpf.ProcessesAUser))
	qt.Check(t, qt.Equals(fill(0, 3<<20), 2*bpf.ProcessesAUser))
	s.Leave(kernel.Program{PID: 1 << 20})
	s.Leave(kernel.Program{PID: 1 << 20})
	qt.Check(t, qt.Equals(fill(1, 4<<20), 1))
}

// A process that executes another program joins with that one, and the one before it leaves, in any order.
func TestAnExecJoinsAnew(t *testing.T) {
	s := New(nil, nil, new(host.Proc), func(int, string) {})
	first, second := &Library{ProbedFile: probed}, &Library{ProbedFile: probed}
	before, after := kernel.Program{PID: 7, ExecID: 1}, kernel.Program{PID: 7, ExecID: 2}
	join := func(p kernel.Program, l *Library, isNew bool) {
		t.Helper()
		got, err := s.Join(p, l, 1)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, isNew))
	}
	join(before, first, true)
	join(before, first, false)
	join(after, second, true)
	s.Leave(before)
	qt.Check(t, qt.Equals(s.Of(7), second))
	join(before, first, false) // its mapping was read late
	qt.Check(t, qt.Equals(s.Of(7), second))
	qt.Check(t, qt.Equals(s.users.Of(1), 1))
	qt.Check(t, qt.HasLen(s.Processes(first), 0))
	s.Leave(after)
	qt.Check(t, qt.IsNil(s.Of(7)))
	qt.Check(t, qt.Equals(s.users.Of(1), 0))
	second.Probes = nil
	_, err := s.Join(after, second, 1)
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
}
