package place

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// A folder that becomes a link after it was followed does not lead elsewhere.
func TestAFolderThatIsReplacedIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	folder, elsewhere := filepath.Join(dir, "folder"), filepath.Join(dir, "elsewhere")
	qt.Assert(t, qt.IsNil(os.Mkdir(folder, 0o755)))
	qt.Assert(t, qt.IsNil(os.Mkdir(elsewhere, 0o755)))
	p, err := Find(filepath.Join(folder, "new"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.Rename(folder, folder+".moved")))
	qt.Assert(t, qt.IsNil(os.Symlink(elsewhere, folder)))
	f, err := p.Open(os.O_WRONLY|os.O_CREATE, 0o644)
	qt.Assert(t, qt.IsNil(err))
	f.Close()
	_, err = os.Stat(filepath.Join(folder+".moved", "new"))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(p.String(), filepath.Join(folder+".moved", "new")))

	// nor does a file that becomes one
	qt.Assert(t, qt.IsNil(p.Remove()))
	qt.Assert(t, qt.IsNil(os.Symlink(filepath.Join(elsewhere, "new"), p.String())))
	_, err = p.Open(os.O_WRONLY|os.O_CREATE, 0o644)
	qt.Check(t, qt.ErrorMatches(err, "open new: too many levels of symbolic links"))
}

func TestPathsLeadWhereTheKernelFindsThem(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "a/file"), nil, 0o644)))
	for name, to := range map[string]string{
		"b": "a/b", "absolute": filepath.Join(dir, "a/b"), "chain": "absolute", "file": "b/../file", "loop": "loop",
	} {
		qt.Assert(t, qt.IsNil(os.Symlink(to, filepath.Join(dir, name))))
	}
	t.Chdir(dir)
	for path, want := range map[string]string{
		"new": "new", "./a//new": "a/new", "a/../new": "new", "b/../new": "a/new", "chain/new": "a/b/new",
		"file": "a/file", dir + "/b/new": "a/b/new", "a": "a",
	} {
		p, err := Find(path)
		qt.Assert(t, qt.IsNil(err), qt.Commentf(path))
		qt.Check(t, qt.Equals(p.String(), filepath.Join(dir, want)), qt.Commentf(path))
	}
	for path, why := range map[string]string{
		"none/new": "open none: no such file or directory", "a/file/new": "open new: not a directory",
		"loop": "too many levels of symbolic links",
	} {
		_, err := Find(path)
		qt.Check(t, qt.ErrorMatches(err, why), qt.Commentf(path))
	}
}

// /dev/stdout leads to what has no path.
func TestAPipeOfThisProcessIsAPlace(t *testing.T) {
	r, w, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	defer w.Close()
	link := filepath.Join(t.TempDir(), "stdout")
	qt.Assert(t, qt.IsNil(os.Symlink(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), link)))
	f, err := Create(link, 0, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = f.WriteString("through")
	qt.Assert(t, qt.IsNil(err))
	f.Close()
	b := make([]byte, 7)
	_, err = r.Read(b)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(b), "through"))
}

// A hard link may be a name for any file of root's.
func TestRootDoesNotWriteIntoAHardLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	file, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o600)))
	qt.Assert(t, qt.IsNil(os.Link(file, link)))
	_, err := Create(link, 0, 0o644)
	qt.Check(t, qt.ErrorMatches(err, "it is a hard link, and may be any file"))
}

// What root makes under sudo is the user's, and what was there keeps its owner.
func TestNewFilesBelongToTheUserBehindSudo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	owner := func(path string) int {
		f, err := Create(path, 0, 0o600)
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		info, err := f.Stat()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(Ours(info)))
		return Owner(info)
	}
	dir := t.TempDir()
	t.Setenv("SUDO_UID", "")
	qt.Check(t, qt.Equals(owner(filepath.Join(dir, "roots")), 0))
	t.Setenv("SUDO_UID", "54321")
	t.Setenv("SUDO_GID", "54321")
	qt.Check(t, qt.Equals(owner(filepath.Join(dir, "users")), 54321))
	qt.Check(t, qt.Equals(owner(filepath.Join(dir, "users")), 54321))
	qt.Check(t, qt.Equals(owner(filepath.Join(dir, "roots")), 0))
	t.Setenv("SUDO_UID", "54322")
	info, err := os.Stat(filepath.Join(dir, "users"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(Ours(info)))
}

// Root needs nothing to write in its own folder, unless the files are for the user behind sudo.
func TestCapabilitiesForFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	own, others := t.TempDir(), t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chown(others, 54321, 54321)))
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(own, "others"), nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Chown(filepath.Join(own, "others"), 54321, 54321)))
	for _, test := range []struct {
		path, sudo string
		needs      bool
	}{
		{filepath.Join(own, "new"), "", false},
		{filepath.Join(own, "new"), "0", false},
		{own, "", false}, // a new file in it
		{filepath.Join(own, "new"), "54321", true},
		{filepath.Join(own, "others"), "", true},
		{filepath.Join(others, "new"), "", true},
		{others, "", true},
		{filepath.Join(own, "none/new"), "", true},
	} {
		t.Setenv("SUDO_UID", test.sudo)
		qt.Check(t, qt.Equals(len(Capabilities(test.path)) > 0, test.needs), qt.Commentf("%+v", test))
	}
}
