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

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(b)
}
