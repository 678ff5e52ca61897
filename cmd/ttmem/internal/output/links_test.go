package output

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"
)

// Root does not write where a link of another user leads.
func TestALinkOfAnotherUserIsNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who can make links of others")
	}
	const other = 65534
	t.Setenv("SUDO_UID", "")
	dir := t.TempDir()
	target, folder := filepath.Join(dir, "target"), filepath.Join(dir, "folder")
	qt.Assert(t, qt.IsNil(os.WriteFile(target, []byte("before"), 0o644)))
	qt.Assert(t, qt.IsNil(os.Mkdir(folder, 0o755)))
	link := func(name, to string, uid int) string {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.Symlink(to, path)))
		qt.Assert(t, qt.IsNil(os.Lchown(path, uid, uid)))
		return path
	}
	own := link("own", "target", 0)
	foreign := link("foreign", target, other)
	for _, path := range []string{
		foreign,
		link("chain", "foreign", 0),
		link("new", filepath.Join(dir, "not-there"), other),
		filepath.Join(link("way", "folder", other), "new"),
	} {
		_, err := Create("--folded", path)
		qt.Check(t, qt.ErrorMatches(err, "--folded .*: the symbolic link .* belongs to user 65534; name a file that can be written"))
	}
	qt.Check(t, qt.Equals(contents(t, target), "before"))
	_, err := os.Stat(filepath.Join(dir, "not-there"))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))

	accepted := func(path string) {
		f, err := Create("--folded", path)
		qt.Assert(t, qt.IsNil(err))
		f.Discard()
	}
	accepted(own)
	accepted(filepath.Join(folder, "new"))
	accepted("/dev/stdout")
	t.Setenv("SUDO_UID", strconv.Itoa(other))
	accepted(foreign)
}

// A hard link may be a name for any file of root's: the name is replaced, and not the file.
func TestAFileIsReplacedAndNotWrittenInto(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte("before"), 0o600)))
	qt.Assert(t, qt.IsNil(os.Link(file, link)))
	qt.Assert(t, qt.IsNil(write(t, link, "new")))
	qt.Check(t, qt.Equals(contents(t, file), "before"))
	qt.Check(t, qt.Equals(contents(t, link), "new"))
}

// What is made of a private recording is private, and a file of another user is not reused.
func TestAFileIsForTheUsersOfItsRecording(t *testing.T) {
	t.Cleanup(func() { Private.Store(false) })
	dir := t.TempDir()
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		return info.Mode().Perm()
	}
	open, loose, folder := filepath.Join(dir, "open"), filepath.Join(dir, "loose"), filepath.Join(dir, "folder")
	qt.Assert(t, qt.IsNil(os.WriteFile(loose, nil, 0o600)))
	qt.Assert(t, qt.IsNil(os.Chmod(loose, 0o666)))
	f, err := Create("-o", open)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(mode(f.temporary.String()), 0o600), qt.Commentf("not finished"))
	qt.Assert(t, qt.IsNil(f.Finish(nil)))
	qt.Check(t, qt.Equals(mode(open), newMode(0o666)))
	Private.Store(true)
	for _, path := range []string{open, loose} {
		qt.Assert(t, qt.IsNil(write(t, path, "private")))
		qt.Check(t, qt.Equals(mode(path), 0o600))
	}
	f, err = CreateFolder("-o", folder)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(f.Finish(nil)))
	qt.Check(t, qt.Equals(mode(folder), 0o700))
	if os.Geteuid() != 0 {
		return
	}
	t.Setenv("SUDO_UID", "")
	for path, create := range map[string]func(string, string) (*File, error){open: Create, folder: CreateFolder} {
		qt.Assert(t, qt.IsNil(os.Chown(path, 65534, 65534)))
		_, err := create("-o", path)
		qt.Check(t, qt.ErrorMatches(err, "-o .*: it belongs to another user; name a .*"))
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(b)
}
