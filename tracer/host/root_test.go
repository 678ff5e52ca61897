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
		f, err := openBelow(root, os.Getpid(), path, maxLinks)
		qt.Check(t, qt.IsTrue(errors.Is(err, want)), qt.Commentf("%s: %v", path, err))
		if err == nil {
			f.Close()
		}
	}
	f, err := OpenPath(at("usr/lib/file"))
	qt.Assert(t, qt.IsNil(err))
	f.Close()
}
