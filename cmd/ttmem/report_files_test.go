package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
)

// smallRecording is a recording of two events.
func smallRecording(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := writeEvents(t, "events.ttmem", []event.Event{
		{Kind: event.Alloc, PID: 7, TimeNs: 1, BufferID: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 << 10, Banks: 12},
		{Kind: event.Free, PID: 7, TimeNs: 2, BufferID: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 << 10, Banks: 12, Reason: event.ReasonExplicit},
	})
	qt.Assert(t, qt.IsNil(os.Chmod(path, mode)))
	return path
}

func TestExportDoesNotWriteOverWhatItReads(t *testing.T) {
	path := smallRecording(t, 0o644)
	before, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	dir := filepath.Dir(path)
	symbolic, hard := filepath.Join(dir, "symbolic"), filepath.Join(dir, "hard")
	qt.Assert(t, qt.IsNil(os.Symlink(path, symbolic)))
	qt.Assert(t, qt.IsNil(os.Link(path, hard)))
	for _, format := range []string{"pprof", "folded"} {
		for _, name := range []string{path, dir + "/./events.ttmem", symbolic, hard} {
			err := execute("export", path, "--to", format, "-o", name)
			qt.Check(t, qt.ErrorMatches(err, "-o .* is the recording itself: name another file"))
		}
	}
	qt.Check(t, qt.ErrorMatches(execute("export", symbolic, "--to", "folded", "-o", path), ".*name another file"))
	after, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(after), string(before)))
	left, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 3))
}

func TestWhatIsMadeOfAPrivateFileIsPrivate(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	for mode, want := range map[os.FileMode]os.FileMode{0o644: 0o644, 0o600: 0o600} {
		unix.Umask(0o022)
		output.Private.Store(false)
		path := writeEvents(t, "model.ttmem", exportedEvents())
		qt.Assert(t, qt.IsNil(os.Chmod(path, mode)))
		folded := filepath.Join(filepath.Dir(path), "folded")
		qt.Assert(t, qt.IsNil(execute("export", path, "--to", "folded", "-o", folded)))
		info, err := os.Stat(folded)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

func TestWhatCannotBeReadAtAllIsNotSaidToBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.ttmem")
	recorded(t, record.Options{Path: path}, 1)
	whole := []byte(readAll(t, path))
	block := bytes.Index(whole, []byte("TTMb"))
	damaged := bytes.Clone(whole)
	damaged[block+50] ^= 0xff
	for _, c := range []struct {
		content []byte
		want    string
	}{
		{whole[:12], ".*model.ttmem is cut short in its header: nothing in it can be read; record again"},
		{whole[:block+50], ".*model.ttmem is cut short in its first block: nothing in it can be read; record again"},
		{damaged, `.*model.ttmem is damaged in its first block \(its checksum is wrong\): nothing in it can be read; record again`},
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, c.content, 0o644)))
		qt.Check(t, qt.ErrorMatches(execute("report", path, "--json"), c.want))
	}
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Check(t, qt.ErrorMatches(execute("report", path), "there is no such file: .*`ttmem run -- COMMAND` makes a recording"))
}
