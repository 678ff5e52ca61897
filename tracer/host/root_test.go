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
