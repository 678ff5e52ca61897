package source

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"ttmem/tracer/host"
)

// maxSource is the size of the largest source file that is read, in bytes.
const maxSource = 1 << 20

// PythonSource returns the text of a Python file that was executed at a time; ok is false if it
// cannot be read or has changed since.
//
// The path comes from a recording, whose author may have named any file. So that no secret of the
// user who reads the recording is shown, only files are read whose real names end in .py, and for
// root only those that every user may read.
func PythonSource(path string, at time.Time) (text string, ok bool) {
	f, err := host.OpenPath(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSource || info.ModTime().After(at) ||
		os.Geteuid() == 0 && info.Mode()&0o004 == 0 {
		return "", false
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !strings.HasSuffix(name, ".py") {
		return "", false
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSource))
	return string(content), err == nil
}
