package kernel

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
)

// addFile adds a file of user 1 with probes, and returns its id.
func addFile(t *testing.T, s *ProbedFiles, name string, pid int) host.FileID {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), name))
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	qt.Assert(t, qt.IsNil(err))
	id, err := host.FileIDOf(file)
	qt.Assert(t, qt.IsNil(err))
	s.remember(id, &mappedFile{ProbedFile: ProbedFile{File: file, Info: info, Probes: io.NopCloser(nil)}, user: 1, pids: map[int]bool{}}, pid)
	return id
}

func TestFilesThatNoProcessMapsMakeRoom(t *testing.T) {
	s := &ProbedFiles{Each: 8}
	used := addFile(t, s, "used", 7)
	for i := 1; i < s.Each; i++ {
		addFile(t, s, strconv.Itoa(i), 0)
	}
	qt.Check(t, qt.IsTrue(s.hasRoom(1)))
	qt.Check(t, qt.Equals(len(s.byID), s.Each-1), qt.Commentf("one makes room"))
	deleted := addFile(t, s, "deleted", 0)
	qt.Assert(t, qt.IsNil(os.Remove(s.byID[deleted].File.Name())))
	qt.Check(t, qt.IsTrue(s.hasRoom(1)))
	qt.Check(t, qt.IsFalse(s.Known(deleted, 7)))
	qt.Check(t, qt.IsTrue(s.Known(used, 7)))
	for _, f := range s.byID {
		f.pids[7] = true
	}
	for len(s.byID) < s.Each {
		addFile(t, s, "last"+strconv.Itoa(len(s.byID)), 7)
	}
	qt.Check(t, qt.IsFalse(s.hasRoom(1)))
	qt.Check(t, qt.IsTrue(s.hasRoom(2)), qt.Commentf("another user"))
	s.Leave(7)
	qt.Check(t, qt.IsTrue(s.hasRoom(1)))
}

// TestAFileWithoutProbesIsReadOnce, unless its content changes. A file is read again under the lease if it
// was written to meanwhile.
func TestAFileWithoutProbesIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	reads, needs := 0, false
	meanwhile := func() {}
	s := &ProbedFiles{Each: 1, Find: func(*os.File, int64) (offsets, cookies []uint64, show string) {
		reads++
		meanwhile()
		if needs {
			needs = false
			return []uint64{0}, []uint64{0}, "calls"
		}
		return nil, nil, ""
	}}
	open := func(text string) {
		t.Helper()
		if text != "" {
			qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o600)))
		}
		file, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsNil(s.Open(file, host.FileID{Inode: 1}, path, 7, 1)))
		_, err = file.Stat()
		qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
	}
	open("first")
	open("")
	qt.Check(t, qt.Equals(reads, 1))
	qt.Check(t, qt.IsTrue(s.Known(host.FileID{Inode: 1}, 7)))
	open("the second")
	qt.Check(t, qt.Equals(reads, 2))
	needs, meanwhile = true, func() {
		meanwhile = func() {}
		qt.Check(t, qt.IsNil(os.WriteFile(path, []byte("while it is read"), 0o600)))
	}
	open("the third one")
	qt.Check(t, qt.Equals(reads, 4))
}
