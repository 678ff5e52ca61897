package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

func TestOpenInRoot(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	qt.Assert(t, qt.IsNil(err))
	at := func(name string) string { return filepath.Join(dir, name) }
	qt.Assert(t, qt.IsNil(os.Mkdir(at("folder"), 0o700)))
	qt.Assert(t, qt.IsNil(os.WriteFile(at("folder/file"), []byte("text"), 0o600)))
	qt.Assert(t, qt.IsNil(os.Symlink("folder", at("link"))))
	qt.Assert(t, qt.IsNil(os.Symlink("/proc/self/root", at("magic"))))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(at("fifo"), 0o600)))
	for path, want := range map[string]error{
		"folder": nil, "folder/file": nil, "link": unix.ELOOP, "link/file": unix.ELOOP,
		"magic/etc": unix.ELOOP, "fifo": unix.EINVAL, "gone": unix.ENOENT,
	} {
		f, err := OpenInRoot(os.Getpid(), at(path))
		qt.Check(t, qt.IsTrue(errors.Is(err, want)), qt.Commentf("%s: %v", path, err))
		if err == nil {
			f.Close()
		}
	}
	f, err := OpenInRoot(os.Getpid(), at("folder"))
	qt.Assert(t, qt.IsNil(err))
	names, err := f.Readdirnames(-1)
	f.Close()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(names, []string{"file"}))
}

// Links in a path that a user may have chosen stay below its root.
func TestLinksStayBelowTheRoot(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	qt.Assert(t, qt.IsNil(os.MkdirAll(at("usr/lib"), 0o700)))
	qt.Assert(t, qt.IsNil(os.WriteFile(at("usr/lib/file"), []byte("text"), 0o600)))
	for link, target := range map[string]string{
		"lib": "/usr/lib", "up": "../../../../usr/lib/file", "usr/lib/same": "./file", "usr/back": "../lib/./file",
		"loop": "loop", "magic": "/proc/self/root",
	} {
		qt.Assert(t, qt.IsNil(os.Symlink(target, at(link))))
	}
	for path, want := range map[string]error{
		"/lib/file": nil, "up": nil, "lib/same": nil, "usr//back": nil, "../usr/lib/file": nil, "/lib/../lib/file": nil,
		"loop": unix.ELOOP, "magic": unix.ENOENT, "up/file": unix.ENOTDIR, "etc/passwd": unix.ENOENT,
	} {
		f, err := openBelow(root, os.Getpid(), path, maxLinks, false)
		qt.Check(t, qt.IsTrue(errors.Is(err, want)), qt.Commentf("%s: %v", path, err))
		if err == nil {
			f.Close()
		}
	}
}

// Nobody gets to see what only root may read by naming it in a recording.
func TestWhatNotEveryUserMayReadIsNotPublic(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("SUDO_UID", "")
	top := t.TempDir()
	for dir := top; dir != os.TempDir(); dir = filepath.Dir(dir) {
		qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	}
	folder, file, link := filepath.Join(top, "folder"), filepath.Join(top, "folder/file"), filepath.Join(top, "link")
	qt.Assert(t, qt.IsNil(os.Mkdir(folder, 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink("folder/../folder/file", link)))
	for _, c := range []struct {
		file, folder os.FileMode
		owner        int
		sudo         string
		opened       bool
	}{
		{0o644, 0o755, 0, "", true},
		{0o644, 0o711, 0, "", true},
		{0o644, 0o700, 0, "", false},
		{0o644, 0o754, 0, "", false},
		{0o640, 0o755, 0, "", false},
		{0o600, 0o755, 54321, "", false},
		{0o600, 0o700, 54321, "54321", true},
		{0o600, 0o755, 54322, "54321", false},
		{0o600, 0o755, 0, "54321", false},
	} {
		qt.Assert(t, qt.IsNil(os.Chmod(file, c.file)))
		qt.Assert(t, qt.IsNil(os.Chmod(folder, c.folder)))
		qt.Assert(t, qt.IsNil(os.Chown(file, c.owner, 0)))
		t.Setenv("SUDO_UID", c.sudo)
		for _, path := range []string{file, link} {
			f, err := OpenPublic(path)
			qt.Check(t, qt.Equals(err == nil, c.opened), qt.Commentf("%s %+v: %v", path, c, err))
			if err == nil {
				f.Close()
			}
		}
	}
}

// TestOpenIfMapped: a path leads to the file that a process has mapped, or nothing is opened.
func TestOpenIfMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("text"), 0o600)))
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	id, err := FileIDOf(file)
	qt.Assert(t, qt.IsNil(err))
	id.Generation = 7 // of a record
	check := func(path string, want error) {
		t.Helper()
		f, err := OpenIfMapped(path, id)
		qt.Check(t, qt.ErrorIs(err, want))
		if err == nil {
			f.Close()
		}
	}
	check(path, nil)
	check("/proc/version", unix.ESTALE)
	check("/sys/kernel", unix.ESTALE)
	qt.Assert(t, qt.IsNil(os.Rename(path, path+".moved")))
	check(path, unix.ENOENT)
	qt.Assert(t, qt.IsNil(os.Symlink(path+".moved", path)))
	check(path, unix.ELOOP)
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("text"), 0o600)))
	check(path, unix.ESTALE)
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(path, 0o600)))
	check(path, unix.ESTALE)
}
