package e2e

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

var built struct {
	sync.Once
	dir string
	err error
}

// release returns the folder of a release, which is made once.
func release(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp(filepath.Dir(ttmem), "dist"); built.err != nil {
			return
		}
		// with the build tool that is installed here; without, pip downloads it
		cmd := exec.Command("make", "dist", "DIST="+built.dir, "COMPRESS=-1", "PIP="+notebookPython(t, "3.12")+" -m pip", "PIP_FLAGS=--no-build-isolation --no-index")
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "DPKG_DEB_COMPRESSOR_TYPE=none") // compression would take longest
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	qt.Assert(t, qt.IsNil(built.err))
	return built.dir
}

// notebookPython returns a Python that has pip and what notebooks and pytest need.
func notebookPython(t *testing.T, version string) string {
	t.Helper()
	python, err := rig.PythonWith(t.Context(), version, t.Output(), rig.Notebook(rig.Pandas[version])...)
	qt.Assert(t, qt.IsNil(err))
	return python
}

// oneFile returns the one file of a folder that matches.
func oneFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 1))
	return files[0]
}

// A release is a wheel, a Debian package and a tarball with right checksums. The program in each is static
// and runs.
func TestDist(t *testing.T) {
	t.Parallel()
	run := func(in, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = in
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s %q: %s", name, args, out))
		return string(out)
	}
	dir := release(t)
	run(dir, "sha256sum", "--check", "SHA256SUMS")
	t.Run("wheel", func(t *testing.T) { checkWheel(t, dir) })
	for kind, unpack := range map[string][]string{
		"*.deb":    {"dpkg-deb", "-x"},
		"*.tar.gz": {"tar", "--one-top-level=usr", "-xf"},
	} {
		root := t.TempDir()
		args := append(unpack, oneFile(t, dir, kind))
		if unpack[0] == "dpkg-deb" {
			args = append(args, root)
		}
		run(root, args[0], args[1:]...)
		checkStatic(t, filepath.Join(root, "usr/bin/ttmem"))
		qt.Check(t, qt.Matches(run(root, filepath.Join(root, "usr/bin/ttmem"), "version"), `ttmem version [0-9.]+(\+\w+(-dirty)?)?\n`))
		for _, file := range []string{"share/man/man1/ttmem-run.1", "share/bash-completion/completions/ttmem", "lib/systemd/system/ttmem.service", "share/doc/ttmem/LICENSE"} {
			run(root, "test", "-s", filepath.Join("usr", file))
		}
		// the pages that help texts and README.md name, by the same paths
		pages, err := filepath.Glob("../docs/*.md")
		qt.Assert(t, qt.IsNil(err))
		for _, page := range append(pages, "../README.md", "../python/ttmem/README.md", "../docs/schema.json") {
			installed := filepath.Join(root, "usr/share/doc/ttmem", strings.TrimPrefix(page, "../"))
			run("..", "cmp", page[len("../"):], installed)
			info, err := os.Stat(installed)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(info.Mode().Perm(), 0o644), qt.Commentf("%s", installed))
		}
	}
}

// checkWheel installs the wheel beside each version of Python that the package supports, in the short form beside
// two: in clean environments, and for those without pip in folders. The program and the package have one version, and find each other without a PATH.
func checkWheel(t *testing.T, dist string) {
	wheel := oneFile(t, dist, "*.whl")
	file, _ := recordProgram(t, "0.81.1", "demo.py")
	run := func(t *testing.T, env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = t.TempDir(), env
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s %q: %s", name, args, out))
		return string(out)
	}
	check := func(t *testing.T, env []string, python, program, version string) {
		says := run(t, env, python, "-c", `import os, sys, ttmem
assert not os.environ.get("PATH")
run = ttmem.open(sys.argv[1])
print(sys.version.split()[0], ttmem.__version__, run.command, len(run.json("oom")["failures"]))`, file)
		qt.Check(t, qt.Matches(says, regexp.QuoteMeta(version)+`\S* (\S+) `+regexp.QuoteMeta(program)+` 1\n`))
		release := strings.Fields(says)[1]
		for _, command := range [][]string{{program, "--version"}, {python, "-m", "ttmem", "--version"}} {
			qt.Check(t, qt.Matches(run(t, env, command[0], command[1:]...), `ttmem version `+regexp.QuoteMeta(release)+`(\+\S+)?\n`))
		}
		checkStatic(t, program)
	}
	for _, version := range rig.PythonVersions {
		if version != "3.12" && !*tracetest.Long {
			continue
		}
		t.Run(version, func(t *testing.T) {
			clean := filepath.Join(t.TempDir(), "venv")
			run(t, nil, notebookPython(t, version), "-m", "venv", "--without-pip", clean)
			python := filepath.Join(clean, "bin/python")
			run(t, nil, notebookPython(t, version), "-m", "pip", "--python="+python, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", wheel)
			check(t, []string{"LANG=C.UTF-8"}, python, filepath.Join(clean, "bin/ttmem"), version)
			for _, file := range []string{"man/man1/ttmem-run.1", "bash-completion/completions/ttmem", "doc/ttmem/docs/leaks.md"} {
				run(t, nil, "/usr/bin/test", "-s", filepath.Join(clean, "share", file))
			}
		})
	}
	for _, p := range append(rig.Debian, rig.OldestPython) {
		if p != rig.OldestPython && !*tracetest.Long {
			continue
		}
		t.Run(p.Version, func(t *testing.T) {
			python, err := rig.DebianPython(t.Context(), p.Suite, p.Version)
			qt.Assert(t, qt.IsNil(err))
			folder := t.TempDir()
			run(t, nil, notebookPython(t, "3.12"), "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--no-index", "--only-binary=:all:", "--python-version="+p.Version, "--target="+folder, wheel)
			check(t, []string{"PYTHONPATH=" + folder}, python.Exe, filepath.Join(folder, "bin/ttmem"), p.Version)
		})
	}
}

// checkStatic checks that a program needs no dynamic linker and no libraries.
func checkStatic(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	for _, segment := range f.Progs {
		qt.Check(t, qt.Not(qt.Equals(segment.Type, elf.PT_INTERP)))
	}
	libraries, err := f.ImportedLibraries()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(libraries, 0))
}
