package source

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"ttmem/tracer/host"
)

// maxSource is the size of the largest source file that is read, in bytes.
const maxSource = 1 << 20

// PythonSource returns the text of a Python file that was executed at a time. The error is
// fs.ErrPermission if not every user may read it, and another one if it has changed since.
//
// The path comes from a recording, whose author may have named any file: see host.OpenPublic. The real
// name must end in .py.
func PythonSource(path string, at time.Time) (text string, err error) {
	f, err := host.OpenPublic(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSource || info.ModTime().After(at) {
		return "", fs.ErrInvalid
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !strings.HasSuffix(name, ".py") {
		return "", fs.ErrInvalid
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSource))
	return string(content), err
}
