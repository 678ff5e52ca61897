package output

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
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

// write writes a text to a file that a flag names.
func write(t *testing.T, path, text string) error {
	t.Helper()
	f, err := Create("--folded", path)
	qt.Assert(t, qt.IsNil(err))
	_, err = f.W.WriteString(text)
	return f.Finish(err)
}

func TestAnOlderFileStaysUntilTheNewOneIsComplete(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.folded")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("what was there before"), 0o644)))
	f, err := Create("--folded", path)
	qt.Assert(t, qt.IsNil(err))
	_, err = f.W.WriteString("new")
	qt.Assert(t, qt.IsNil(err))
	before, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(before), "what was there before"))
	qt.Assert(t, qt.IsNil(f.Finish(nil)))
	f.Discard()
	qt.Check(t, qt.DeepEquals(names(t, dir), []string{"x.folded"}))
	after, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(after), "new"))
}

func TestAFileThatIsNotFinishedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f, err := Create("--pprof", filepath.Join(dir, "x"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(names(t, dir), 1))
	f.Discard()
	qt.Check(t, qt.HasLen(names(t, dir), 0))
}

func TestAnUnwritablePathIsAnErrorBeforeAnythingStarts(t *testing.T) {
	dir := t.TempDir()
	for path, says := range map[string]string{
		filepath.Join(dir, "none", "x"): "--folded .*/none/x: no such file or directory; name a file that can be written",
		dir:                             "--folded .*: is a directory; name a file that can be written",
	} {
		_, err := Create("--folded", path)
		qt.Check(t, qt.ErrorMatches(err, says))
		qt.Check(t, qt.HasLen(names(t, dir), 0))
	}
}

func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink(file, link)))
	qt.Assert(t, qt.IsNil(write(t, link, "new")))
	info, err := os.Lstat(link)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Type(), os.ModeSymlink))
	content, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(content), "new"))
}

func TestFailedWritesAreReported(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	qt.Check(t, qt.ErrorMatches(write(t, "/dev/full", "new"), "no space left on device"))
}

func TestFilesKeepWhomTheOlderOneWasFor(t *testing.T) {
	dir := t.TempDir()
	private, link, dangling := filepath.Join(dir, "private"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	qt.Assert(t, qt.IsNil(os.WriteFile(private, []byte("old"), 0o600)))
	qt.Assert(t, qt.IsNil(os.Symlink("private", link)))
	qt.Assert(t, qt.IsNil(os.Symlink("new", dangling)))
	for _, path := range []string{link, dangling} {
		qt.Check(t, qt.IsNil(write(t, path, "new")))
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
