package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/output"
	"ttmem/tracer/event"
)

// checkFlags parses flags of a command and checks them as is done before it
// starts.
func checkFlags(command string, args ...string) error {
	c, _, err := newRoot().Find([]string{command})
	if err != nil {
		return err
	}
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	return c.PreRunE(c, nil)
}

func TestFlagsOfExportsAreCheckedEarly(t *testing.T) {
	here, err := os.Getwd()
	qt.Assert(t, qt.IsNil(err))
	for name, test := range map[string]struct{ args, says string }{
		"nothing":            {"", ""},
		"all three":          {"--folded a --pprof b --flamegraph c", ""},
		"a value":            {"--folded a --folded-value live-count", ""},
		"standard output":    {"--folded - --pprof b", ""},
		"no such value":      {"--folded a --folded-value size", `--folded-value: no such value "size": one of peak-bytes, live-bytes, .*`},
		"a value of nothing": {"--pprof a --folded-value live-bytes", "--folded-value is of folded stacks: give --folded FILE too"},
		"no name":            {"--flamegraph=", "--flamegraph: name a file"},
		"twice the same":     {"--pprof x --folded ./x", "--pprof and --folded cannot both be ./x"},
		"the events":         {"--events x --folded x", "--events and --folded cannot both be x"},
		"a file's two names": {"--pprof x --folded " + here + "/x", "--pprof and --folded cannot both be .*/x"},
		"events to nowhere":  {"--events -", "--events -: name a file; /dev/stdout is standard output"},
		"twice the output":   {"--pprof - --folded -", "--pprof and --folded cannot both be standard output"},
		"the report":         {"--json --folded -", "--json and --folded cannot both be standard output"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFlags("report", strings.Fields(test.args)...)
			if test.says == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, test.says))
			}
		})
	}
}

func TestValuesOfFoldedStacksAreCompleted(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"__complete", "report", "--folded-value", ""})
	qt.Assert(t, qt.IsNil(root.Execute()))
	qt.Check(t, qt.StringContains(out.String(), "peak-bytes\nlive-bytes\nallocated-bytes\npeak-count\n"))
}

func TestHelpShowsHowToExport(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"help", "report"})
	qt.Assert(t, qt.IsNil(root.Execute()))
	for _, want := range []string{"ttmem report model.ttmem --flamegraph memory.html", "go tool pprof -top -cum", "--folded-value VALUE"} {
		qt.Check(t, qt.StringContains(out.String(), want))
	}
}

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
func oneBuffer() *aggregate.Profile {
	state := aggregate.New()
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "/srv/model.py", Line: 123}})
	state.Apply(&event.Event{
		TimeNs: second, Kind: event.Alloc, PID: 7, Comm: "python3", BufferID: 1, Devices: []int{0},
		BytesPerBank: 100, Banks: 12, Stack: stack,
	})
	return state.Profile()
}

func TestExportsAreWrittenAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	o := output.ExportOptions{
		FlameGraph: filepath.Join(dir, "x.html"), Pprof: filepath.Join(dir, "x.pb.gz"),
		Folded: filepath.Join(dir, "x.folded"), FoldedValue: "live-bytes",
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(o.Folded, []byte("what was there before"), 0o644)))
	x, err := output.NewExporter(o)
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
		"ttmem: wrote folded live-bytes of 1 stack to "+o.Folded+"\n"))
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
	x, err := output.NewExporter(output.ExportOptions{Pprof: filepath.Join(dir, "x"), FoldedValue: "peak-bytes"})
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
		_, err := output.NewExporter(output.ExportOptions{FlameGraph: good, Folded: path, FoldedValue: "peak-bytes"})
		qt.Check(t, qt.ErrorMatches(err, says))
		qt.Check(t, qt.HasLen(names(t, dir), 0))
	}
}

func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink(file, link)))
	x, err := output.NewExporter(output.ExportOptions{Folded: link, FoldedValue: "peak-bytes"})
	qt.Assert(t, qt.IsNil(err))
	standardError(t, func() { qt.Check(t, qt.IsTrue(x.Write(oneBuffer()))) })
	info, err := os.Lstat(link)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Type(), os.ModeSymlink))
	content, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(content), " 1200\n"))
}

func TestWhatCannotBeWrittenIsTold(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	x, err := output.NewExporter(output.ExportOptions{Folded: "/dev/full", FoldedValue: "peak-bytes"})
	qt.Assert(t, qt.IsNil(err))
	said := standardError(t, func() { qt.Check(t, qt.IsFalse(x.Write(oneBuffer()))) })
	qt.Check(t, qt.Equals(said, "ttmem: --folded /dev/full: no space left on device\n"))
}

func TestNothingIsExportedUnlessItIsAskedFor(t *testing.T) {
	x, err := output.NewExporter(output.ExportOptions{FoldedValue: "peak-bytes"})
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
	qt.Check(t, qt.Equals(output.Resolved(link), output.Resolved(private)))
	qt.Check(t, qt.Equals(output.Resolved(dangling), output.Resolved(filepath.Join(dir, "new"))))
	for _, path := range []string{link, dangling} {
		x, err := output.NewExporter(output.ExportOptions{Folded: path, FoldedValue: "peak-bytes"})
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
