package libraries

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// addBeside adds a file with probes, and returns its id.
func addBeside(t *testing.T, s *Set, name string, pid int) host.FileID {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), name))
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	id, err := host.FileIDOf(file)
	qt.Assert(t, qt.IsNil(err))
	s.rememberBeside(id, &besideFile{ProbedFile: kernel.ProbedFile{File: file, Probes: noProbes{}}, user: 1, pids: map[int]bool{}}, pid)
	return id
}

func TestFilesBesideThatNoProcessMapsMakeRoom(t *testing.T) {
	s := New(nil, nil, new(host.Proc), func(int, string) {})
	_, err := s.Join(kernel.Program{PID: 7}, &Library{ProbedFile: probed}, 1)
	qt.Assert(t, qt.IsNil(err))
	used := addBeside(t, s, "used", 7)
	ended := addBeside(t, s, "ended", 8) // it maps no library
	for i := 2; i < maxBeside; i++ {
		addBeside(t, s, strconv.Itoa(i), 0)
	}
	qt.Check(t, qt.HasLen(s.beside[used].pids, 1))
	qt.Check(t, qt.HasLen(s.beside[ended].pids, 0))
	qt.Check(t, qt.IsTrue(s.roomBeside(1)))
	qt.Check(t, qt.HasLen(s.beside, maxBeside-1), qt.Commentf("one makes room"))
	deleted := addBeside(t, s, "deleted", 0)
	qt.Assert(t, qt.IsNil(os.Remove(s.beside[deleted].File.Name())))
	qt.Check(t, qt.IsTrue(s.roomBeside(1)))
	qt.Check(t, qt.IsNil(s.beside[deleted]))
	qt.Check(t, qt.HasLen(s.beside, maxBeside-1), qt.Commentf("the deleted one made room"))
	qt.Check(t, qt.IsTrue(s.KnownBeside(used, 7)))
	qt.Check(t, qt.IsFalse(s.KnownBeside(deleted, 7)))
	for _, f := range s.beside {
		f.pids[7] = true
	}
	addBeside(t, s, "last", 7)
	qt.Check(t, qt.IsFalse(s.roomBeside(1)))
	s.Leave(kernel.Program{PID: 7})
	qt.Check(t, qt.IsTrue(s.roomBeside(1)))
}
