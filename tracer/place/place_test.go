package place

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
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
	p, err := Find(link)
	qt.Assert(t, qt.IsNil(err))
	f, err := p.OpenExisting(link)
	qt.Assert(t, qt.IsNil(err))
	_, err = f.WriteString("through")
	qt.Assert(t, qt.IsNil(err))
	f.Close()
	b := make([]byte, 7)
	_, err = r.Read(b)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(b), "through"))
}

// What another user could read, or replace, is not written.
func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("SUDO_UID", "")
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"pipe": func(path string) error { return unix.Mkfifo(path, 0o666) },
	} {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(make(path)))
		qt.Assert(t, qt.IsNil(os.Chown(path, 54321, 54321)))
		p, err := Find(path)
		qt.Assert(t, qt.IsNil(err))
		_, err = p.OpenExisting(path)
		qt.Check(t, qt.ErrorIs(err, ErrNotOurs), qt.Commentf(name))
	}
	folder := filepath.Join(dir, "folder")
	qt.Assert(t, qt.IsNil(os.Mkdir(folder, 0o755)))
	qt.Assert(t, qt.IsNil(os.Chown(folder, 54321, 54321)))
	p, err := Find(folder)
	qt.Assert(t, qt.IsNil(err))
	_, err = p.OpenFolder()
	qt.Check(t, qt.ErrorIs(err, ErrNotOurs))
}

// Whoever can rename the folder of a temporary file chooses what root opens by its name.
func TestRootHasNoTemporaryFilesWhereOthersRename(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("SUDO_UID", "")
	top := t.TempDir()
	below := filepath.Join(top, "others", "own")
	qt.Assert(t, qt.IsNil(os.MkdirAll(below, 0o755)))
	for _, c := range []struct {
		mode  os.FileMode
		owner int
		works bool
	}{{0o755, 0, true}, {0o777, 0, false}, {0o777 | os.ModeSticky, 0, true}, {0o755, 54321, false}, {0o755 | os.ModeSticky, 54321, false}} {
		qt.Assert(t, qt.IsNil(os.Chown(filepath.Dir(below), c.owner, c.owner)))
		qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(below), c.mode)))
		t.Setenv("TMPDIR", below)
		f, err := Temporary("x-")
		qt.Check(t, qt.Equals(err == nil, c.works), qt.Commentf("%+v: %v", c, err))
		if err == nil {
			qt.Check(t, qt.Equals(filepath.Dir(f.Name()), below))
			f.Close()
			os.Remove(f.Name())
		}
	}
}

// What root makes under sudo is the user's.
func TestNewFilesBelongToTheUserBehindSudo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	owner := func(path string) int {
		p, err := Find(path)
		qt.Assert(t, qt.IsNil(err))
		f, err := p.Create(path, 0o600)
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
