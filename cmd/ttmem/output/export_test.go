package output

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// names of the files in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// oneBuffer is a profile of one buffer.
func oneBuffer() *memory.Profile {
	state := aggregate.New()
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "/srv/model.py", Line: 123}})
	state.Apply(&event.Event{
		TimeNs: 1e9, Kind: event.Alloc, PID: 7, Comm: "python3", BufferID: 1, Devices: []int{0},
		BytesPerBank: 100, Banks: 12, Stack: stack,
	})
	return state.Profile()
}

func TestExportsAreWrittenAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	o := ExportOptions{
		FlameGraph: filepath.Join(dir, "x.html"), Pprof: filepath.Join(dir, "x.pb.gz"),
		Folded: filepath.Join(dir, "x.folded"),
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(o.Folded, []byte("what was there before"), 0o644)))
	x, err := NewExporter(o)
	qt.Assert(t, qt.IsNil(err))
	// whatever was there stays until all is known
	before, err := os.ReadFile(o.Folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(before), "what was there before"))
	said := standardError(t, func() { qt.Check(t, qt.IsTrue(x.Write(oneBuffer()))) })
	x.Close()

	qt.Check(t, qt.DeepEquals(names(t, dir), []string{"x.folded", "x.html", "x.pb.gz"}))
	folded, err := os.ReadFile(o.Folded)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(folded), "python3 (7);device 0;DRAM;forward (model.py:123) 1200\n"))
	page, err := os.ReadFile(o.FlameGraph)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(bytes.HasPrefix(page, []byte("<!DOCTYPE html>"))))
	f, err := os.Open(o.Pprof)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	_, err = gzip.NewReader(f)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(said, "ttmem: wrote flame graph of 1 stack to "+o.FlameGraph+"\n"+
		"ttmem: wrote pprof profile of 1 stack to "+o.Pprof+"\n"+
		"ttmem: wrote folded stacks of 1 stack to "+o.Folded+"\n"))
}

// standardError gives what f writes there.
func standardError(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	saved := os.Stderr
	os.Stderr = w
	f()
	os.Stderr = saved
	w.Close()
	said, err := io.ReadAll(r)
	qt.Assert(t, qt.IsNil(err))
	return string(said)
}

func TestAnExportThatIsNotWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	x, err := NewExporter(ExportOptions{Pprof: filepath.Join(dir, "x")})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(names(t, dir), 1))
	x.Close()
	qt.Check(t, qt.HasLen(names(t, dir), 0))
}

func TestAnUnwritablePathIsAnErrorBeforeAnythingStarts(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	for path, says := range map[string]string{
		filepath.Join(dir, "none", "x"): "--folded .*/none/x: no such file or directory; name a file that can be written",
		dir:                             "--folded .*: is a directory; name a file that can be written",
	} {
		_, err := NewExporter(ExportOptions{FlameGraph: good, Folded: path})
		qt.Check(t, qt.ErrorMatches(err, says))
		qt.Check(t, qt.HasLen(names(t, dir), 0))
	}
}

func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink(file, link)))
	x, err := NewExporter(ExportOptions{Folded: link})
	qt.Assert(t, qt.IsNil(err))
	standardError(t, func() { qt.Check(t, qt.IsTrue(x.Write(oneBuffer()))) })
	info, err := os.Lstat(link)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Type(), os.ModeSymlink))
	content, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(content), " 1200\n"))
}

func TestFailedWritesAreReported(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	x, err := NewExporter(ExportOptions{Folded: "/dev/full"})
	qt.Assert(t, qt.IsNil(err))
	said := standardError(t, func() { qt.Check(t, qt.IsFalse(x.Write(oneBuffer()))) })
	qt.Check(t, qt.Equals(said, "ttmem: --folded /dev/full: no space left on device\n"))
}

func TestNothingIsExportedByDefault(t *testing.T) {
	x, err := NewExporter(ExportOptions{})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(x))
	x.Close()
}

func TestExportsKeepWhatTheFileWasFor(t *testing.T) {
	dir := t.TempDir()
	private, link, dangling := filepath.Join(dir, "private"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	qt.Assert(t, qt.IsNil(os.WriteFile(private, []byte("old"), 0o600)))
	qt.Assert(t, qt.IsNil(os.Symlink("private", link)))
	qt.Assert(t, qt.IsNil(os.Symlink("new", dangling)))
	for _, path := range []string{link, dangling} {
		x, err := NewExporter(ExportOptions{Folded: path})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(x.Write(oneBuffer())))
		x.Close()
		info, err := os.Lstat(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Type(), os.ModeSymlink))
	}
	info, err := os.Stat(private)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), os.FileMode(0o600)))
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))
}
