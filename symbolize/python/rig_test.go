package python

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/symbolize"
)

// interpreter is a Python to test with.
type interpreter struct{ rig.Interpreter }

// interpreters returns the Pythons of this machine with a supported version, and the rig's free-threaded one if it
// was built. It skips the test if there is none.
func interpreters(t *testing.T) (found []interpreter) {
	t.Helper()
	for _, p := range rig.Interpreters() {
		found = append(found, interpreter{p})
	}
	if rig.HasFreeThreadedPython() {
		p, err := rig.FreeThreadedPython(t.Context())
		qt.Assert(t, qt.IsNil(err))
		found = append(found, interpreter{p})
	}
	if len(found) == 0 {
		t.Skip("no CPython 3.10 to 3.14: neither pyenv nor PATH has one")
	}
	return found
}

// file returns the file with the interpreter: the program, or its library.
func (p interpreter) file(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(p.Exe, "-c", `print(*{l.split()[-1] for l in open("/proc/self/maps") if "/" in l}, sep="\n")`).Output()
	qt.Assert(t, qt.IsNil(err))
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		e, err := symbolize.Open(path)
		if err != nil {
			continue
		}
		_, err = Find(e)
		e.Close()
		if err != ErrNotPython {
			return path
		}
	}
	t.Fatalf("%s: it maps no interpreter", p.Exe)
	return ""
}

func mustOpen(t testing.TB, path string) *symbolize.ELF {
	t.Helper()
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { e.Close() })
	return e
}
