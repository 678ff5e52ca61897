package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// script makes an executable at dir/name.
func script(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	qt.Assert(t, qt.IsNil(writeFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755)))
	return path
}

// bare simulates a machine without Python and returns its home.
func bare(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", filepath.Join(home, "bin"))
	t.Setenv("PYENV_ROOT", "")
	t.Setenv("SUDO_USER", "")
	return home
}

func TestFindPython(t *testing.T) {
	const works = "echo 3.10"

	t.Run("none", func(t *testing.T) {
		bare(t)
		_, _, err := findPython(t.Context(), []string{"3.10"})
		qt.Check(t, qt.ErrorMatches(err, `no usable Python 3\.10 .*apt install python3\.10-venv.* on Ubuntu 22\.04; .*uv python install 3\.10.* on Debian .*, or choose Python 3\.12`))
		_, _, err = findPython(t.Context(), PythonVersions)
		qt.Check(t, qt.ErrorMatches(err, `no usable Python 3\.10 or 3\.12 .*python3\.10-venv.*python3\.12-venv.* on Ubuntu 24\.04; .*uv python install 3\.12. on Debian and other releases of Ubuntu`))
	})
	t.Run("on PATH", func(t *testing.T) {
		home := bare(t)
		want := script(t, home, "bin/python3.10", works)
		v, got, err := findPython(t.Context(), PythonVersions)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(v, "3.10"))
		qt.Check(t, qt.Equals(got, want))
	})
	t.Run("behind a pyenv shim that fails", func(t *testing.T) {
		home := bare(t)
		script(t, home, "bin/python3.10", "exit 127")
		want := script(t, home, ".pyenv/versions/3.10.13/bin/python3.10", works)
		_, got, err := findPython(t.Context(), PythonVersions)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, want))
	})
	t.Run("from uv", func(t *testing.T) {
		home := bare(t)
		want := script(t, home, ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu/bin/python3.12", "echo 3.12")
		v, got, err := findPython(t.Context(), PythonVersions)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(v, "3.12"))
		qt.Check(t, qt.Equals(got, want))
	})
	t.Run("without venv", func(t *testing.T) {
		home := bare(t)
		script(t, home, "bin/python3.10", "echo ModuleNotFoundError >&2; exit 1")
		_, _, err := findPython(t.Context(), []string{"3.10"})
		qt.Check(t, qt.ErrorMatches(err, "no usable Python 3.10 .*"))
	})
}

func TestSetupRefuses(t *testing.T) {
	bare(t)
	t.Setenv("TTMEM_CACHE", t.TempDir())
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"an unknown Python":  {Options{Python: "3.11"}, "ttnn has no wheel for Python 3.11: choose 3.10 or 3.12"},
		"no version":         {Options{Version: "latest"}, `version "latest" of ttnn: .*`},
		"an old release":     {Options{Version: "0.65.1"}, "ttnn 0.65.1 does not open a mock device: .*"},
		"a crashing release": {Options{Version: "0.67.4"}, "ttnn 0.67.4 crashes on the mock device: .*"},
		"no Python":          {Options{}, "no usable Python 3.10 or 3.12 .*"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Setup(t.Context(), tc.options)
			qt.Check(t, qt.ErrorMatches(err, tc.want))
		})
	}
}

func TestInstallErrorIsPipsLastWords(t *testing.T) {
	for _, tc := range []struct{ out, want string }{
		{"Collecting ttnn==9\nERROR: Could not find a version\nERROR: No matching distribution found for ttnn==9\n\n[notice] A new release of pip\n",
			"No matching distribution found for ttnn==9"},
		{"Traceback:\n  File x\nOSError: no space left on device\n", "OSError: no space left on device"},
		{"WARNING: retrying\n", ""},
	} {
		qt.Check(t, qt.Equals(lastWords(tc.out), tc.want))
	}

	home := bare(t)
	log := filepath.Join(home, "log")
	qt.Assert(t, qt.IsNil(os.WriteFile(log, []byte("ERROR: of before\n"), 0o644)))
	failing := script(t, home, "bin/pip", "echo ERROR: of now; exit 1")
	qt.Check(t, qt.ErrorMatches(runLogged(t.Context(), log, failing), `of now \(log: .*/log\)`))
}
