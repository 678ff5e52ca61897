package source

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestPythonSource(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(dir), 0o755))) // for every user
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) {
		qt.Assert(t, qt.IsNil(os.WriteFile(at(name), content, 0o644)))
	}
	write("model.py", []byte("x = 1\n"))
	write("secret", []byte("secret\n"))
	write("large.py", bytes.Repeat([]byte("#\n"), maxSource))
	write("later.py", nil)
	now := time.Now()
	qt.Assert(t, qt.IsNil(os.Chtimes(at("later.py"), now, now.Add(time.Hour))))
	qt.Assert(t, qt.IsNil(os.Symlink(at("secret"), at("link.py"))))
	qt.Assert(t, qt.IsNil(os.Symlink(at("model.py"), at("same.py"))))
	qt.Assert(t, qt.IsNil(syscall.Mkfifo(at("pipe.py"), 0o644)))
	qt.Assert(t, qt.IsNil(os.Mkdir(at("folder.py"), 0o755)))
	for name, want := range map[string]bool{
		"model.py": true, "same.py": true,
		"secret": false, "link.py": false, "large.py": false, "later.py": false, "pipe.py": false, "folder.py": false, "none.py": false,
	} {
		text, err := PythonSource(at(name), now.Add(time.Second))
		qt.Check(t, qt.Equals(err == nil, want), qt.Commentf(name))
		if want {
			qt.Check(t, qt.Equals(text, "x = 1\n"))
		}
	}
	qt.Assert(t, qt.IsNil(os.Chmod(at("model.py"), 0o600)))
	_, err := PythonSource(at("model.py"), now.Add(time.Second))
	qt.Check(t, qt.Equals(errors.Is(err, fs.ErrPermission), os.Geteuid() == 0))
}
