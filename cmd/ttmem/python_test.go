package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// TestPythonPackage runs the tests of the Python package, as pip installs it, on recordings of real
// programs.
func TestPythonPackage(t *testing.T) {
	root, err := filepath.Abs("../..")
	qt.Assert(t, qt.IsNil(err))
	exe, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	stories := t.TempDir()
	for _, name := range []string{"leak", "peak", "inference", "killed", "mesh"} {
		readStory(t, storyEvents(goldenFolder, name)).record(t, filepath.Join(stories, name+".ttmem"), 0)
	}
	qt.Assert(t, qt.IsNil(os.Rename(writeEvents(t, "late.ttmem", lateEvents()), filepath.Join(stories, "late.ttmem"))))
	for version, pandas := range rig.Pandas {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python, err := rig.PythonWith(t.Context(), version, t.Output(), rig.Notebook(pandas)...)
			qt.Assert(t, qt.IsNil(err))
			dir := t.TempDir()
			// pip builds inside the source folder
			source, packages := filepath.Join(dir, "source"), filepath.Join(dir, "packages")
			qt.Assert(t, qt.IsNil(os.CopyFS(source, os.DirFS(filepath.Join(root, "python/ttmem")))))
			run := func(args ...string) {
				cmd := exec.Command(python, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), asCommand+"=1", "TTMEM="+exe, "STORIES="+stories, "SCHEMA="+filepath.Join(root, "docs/schema.json"),
					"PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
				out, err := cmd.CombinedOutput()
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			}
			run("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", packages, source)
			tests := filepath.Join(source, "tests")
			if version == "3.10" && !*tracetest.Long { // TestPytestPlugin has the plugin on it
				qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(tests, "test_plugin.py"))))
			}
			run("-m", "pytest", "-q", "-p", "no:cacheprovider", tests)

			// what a notebook shows
			run("-c", `import os, ttmem
run = ttmem.open(os.environ["STORIES"] + "/leak.ttmem", os.environ["TTMEM"])
open("notebook.html", "w").write("<!DOCTYPE html><title>A notebook</title>" + run._repr_html_())`)
			b := browser.New(t, 1100, 900)
			b.OpenFrame(filepath.Join(dir, "notebook.html"))
			var alone bool
			b.Eval("(() => { try { return !parent.document } catch { return true } })()", &alone)
			qt.Check(t, qt.IsTrue(alone)) // its scripts see nothing of the notebook
			b.CheckQuiet()
		})
	}
}
