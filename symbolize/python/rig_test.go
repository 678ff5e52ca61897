package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// interpreter is a Python to test with.
type interpreter struct {
	// name is for subtests: the version, and more if there are several of it.
	name string
	// exe is the program, version its version.
	exe, version string
}

// interpreters returns the Pythons of this machine with a supported version: pyenv's, those
// on PATH, and those in TTMEM_PYTHONS, a list like PATH. It skips the test if there is
// none.
func interpreters(t *testing.T) []interpreter {
	t.Helper()
	found := findInterpreters()
	if len(found) == 0 {
		t.Skip("no CPython 3.10 to 3.14: neither pyenv nor PATH has one")
	}
	return found
}

var findInterpreters = sync.OnceValue(func() (found []interpreter) {
	candidates := filepath.SplitList(os.Getenv("TTMEM_PYTHONS"))
	var roots []string
	if out, err := exec.Command("pyenv", "root").Output(); err == nil {
		roots = append(roots, strings.TrimSpace(string(out)))
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".pyenv"))
	}
	for _, root := range roots {
		m, _ := filepath.Glob(filepath.Join(root, "versions", "3.*", "bin", "python3")) // fails only on a bad pattern
		candidates = append(candidates, m...)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range []string{"python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"} {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	seen, names := map[string]bool{}, map[string]int{}
	for _, c := range candidates {
		// pyenv's shims are scripts; ask for the real path
		out, err := exec.Command(c, "-c", `import os, platform, sys
if platform.python_implementation() == "CPython" and sys.prefix == sys.base_prefix:
    print(os.path.realpath(sys.executable), platform.python_version(), sep="\n")`).Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(lines) != 2 || seen[lines[0]] {
			continue
		}
		seen[lines[0]] = true
		if v, ok := parseVersion(lines[1]); !ok || v.minor < 10 || v.minor > 14 {
			continue
		}
		name := lines[1]
		if names[name]++; names[name] > 1 {
			name += strings.Repeat("'", names[name]-1)
		}
		found = append(found, interpreter{name, lines[0], lines[1]})
	}
	slices.SortFunc(found, func(a, b interpreter) int { return strings.Compare(a.name, b.name) })
	return found
})

// file returns the file with the interpreter: the program, or its library.
func (p interpreter) file(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(p.exe, "-c", `print(*{l.split()[-1] for l in open("/proc/self/maps") if "/" in l}, sep="\n")`).Output()
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
	t.Fatalf("%s: it maps no interpreter", p.exe)
	return ""
}

func mustOpen(t testing.TB, path string) *symbolize.ELF {
	t.Helper()
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { e.Close() })
	return e
}
