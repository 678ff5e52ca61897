package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// TestLikelyLibraries: the libraries of an environment are found by each way in which a command names its Python.
func TestLikelyLibraries(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "my venv", "lib", "python3.10", "site-packages", "ttnn", "build", "lib", "libtt_metal.so")
	python := filepath.Join(dir, "my venv", "bin", "python")
	make := func(path, text string) {
		t.Helper()
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o755)))
	}
	make(library, "")
	make(python, "\x7fELF")
	script := filepath.Join(dir, "train")
	make(script, "#!/usr/bin/env python\nprint()\n")
	t.Chdir(dir)
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("PYTHONPATH", "")
	t.Setenv("TT_METAL_HOME", "")
	t.Setenv("PATH", "/usr/bin:/bin")
	check := func(want []string, command ...string) {
		t.Helper()
		qt.Check(t, qt.DeepEquals(LikelyLibraries(command), want), qt.Commentf("%q", command))
	}
	found := []string{library}
	check(found, python, "x.py")
	check(found, "my venv/bin/python", "x.py")
	check(nil, "sh", "-c", "python x.py")
	check(nil, script)
	t.Setenv("PATH", filepath.Dir(python)+":/usr/bin:/bin")
	check(found, "python", "x.py")
	check(found, "sh", "-c", "cd x && (python x.py; true)")
	check(found, "timeout", "60", "env", "A=b", "python", "x.py")
	check(found, script)
	check(found, "sh", "-c", script+" x | tee y")
	check(nil, "true")
	check(nil, "sh", "-c", "pythons x.py")
}

// TestOpenPython: a command's CPython is its program, or the library that the program is linked with.
func TestOpenPython(t *testing.T) {
	script := filepath.Join(t.TempDir(), "python3") // as pyenv has one
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755)))
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable); print(open('/proc/self/maps').read())").Output()
	qt.Assert(t, qt.IsNil(err))
	executable, mapped, _ := strings.Cut(string(out), "\n")
	file := OpenPython([]string{"env", "A=b", script, executable, "-c", "print()"})
	qt.Assert(t, qt.IsNotNil(file))
	defer file.Close()
	real, err := filepath.EvalSymlinks(file.Name())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(mapped, real+"\n"))
	elf, err := symbolize.Open(real)
	qt.Assert(t, qt.IsNil(err))
	defer elf.Close()
	_, found := elf.Lookup("_PyRuntime")
	qt.Check(t, qt.IsTrue(found))
	qt.Check(t, qt.IsNil(OpenPython([]string{"true", script, "x.py"})))
}

// TestBesideHasMarks: the library of marks is prepared for where Python will find ttmem's package.
func TestBesideHasMarks(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "venv", "ttnn", "build", "lib", "libtt_metal.so")
	installed, other := filepath.Join(dir, "venv", "ttmem", "libttmem_mark.so"), filepath.Join(dir, "other", "ttmem", "libttmem_mark.so")
	for _, path := range []string{library, installed, other} {
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, nil, 0o644)))
	}
	t.Setenv("PYTHONPATH", "")
	qt.Check(t, qt.DeepEquals(Beside(library), []string{library, installed}))
	t.Setenv("PYTHONPATH", "relative:"+filepath.Join(dir, "other"))
	qt.Check(t, qt.DeepEquals(Beside(library), []string{library, other, installed}))
}
