package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// An Interpreter is a Python to test with.
type Interpreter struct {
	// Name is for subtests: the version, and more if there are several of it.
	Name string
	// Exe is the program.
	Exe, Version string
}

// Interpreters returns the Pythons of this machine with a version that ttmem supports: pyenv's,
// those on PATH, and those in TTMEM_PYTHONS, a list like PATH.
var Interpreters = sync.OnceValue(func() (found []Interpreter) {
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
		if !supported(lines[1]) {
			continue
		}
		name := lines[1]
		if names[name]++; names[name] > 1 {
			name += strings.Repeat("'", names[name]-1)
		}
		found = append(found, Interpreter{name, lines[0], lines[1]})
	}
	slices.SortFunc(found, func(a, b Interpreter) int { return strings.Compare(a.Name, b.Name) })
	return found
})

// supported reports whether ttmem supports a version of CPython.
func supported(version string) bool {
	return slices.ContainsFunc([]string{"3.10.", "3.11.", "3.12.", "3.13.", "3.14."}, func(minor string) bool {
		return strings.HasPrefix(version, minor)
	})
}
