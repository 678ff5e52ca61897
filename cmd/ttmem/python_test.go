package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// TestPythonPackage runs the tests of the Python package, as pip installs it, on recordings of real
// programs: beside two releases of pandas, and beside packages that it uses where they are installed.
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
	qt.Assert(t, qt.IsNil(os.Rename(writeEvents(t, "many.ttmem", manyEvents()), filepath.Join(stories, "many.ttmem"))))
	for name, beside := range map[string][]string{
		"3.10": rig.Notebook(rig.Pandas["3.10"]), "3.12": rig.Notebook(rig.Pandas["3.12"]), "3.12 with Arrow": rig.Arrow(rig.Pandas["3.12"]),
	} {
		version, _, withArrow := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python, err := rig.PythonWith(t.Context(), version, t.Output(), beside...)
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
			if (version == "3.10" || withArrow) && !*tracetest.Long { // TestPytestPlugin has the plugin on it
				qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(tests, "test_plugin.py"))))
			}
			run("-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
			if withArrow {
				typed := []string{"-m", "mypy", "--strict", "--disable-error-code=import-untyped", "--follow-imports=silent", "--cache-dir=" + filepath.Join(dir, "mypy")}
				for _, module := range []string{"__init__", "recording", "child", "columns", "plotting", "program", "marking"} {
					typed = append(typed, filepath.Join(source, "ttmem", module+".py"))
				}
				qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "user.py"), []byte(usesTypes), 0o600)))
				run(append(typed, "user.py")...)
				return
			}

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

// manyEvents leave more live buffers than 16 bits can number, from more call sites than 8 bits can: in two regions, on one
// chip or two, of all sizes, some with owners that differ, some from before the attach.
func manyEvents() (events []event.Event) {
	var stacks []*event.Stack
	for i := range 300 {
		frame := event.Frame{Kind: event.Python, Name: fmt.Sprintf("layer_%d", i%7), File: "/srv/model.py", Line: 1 + i}
		stacks = append(stacks, event.StackOf([]event.Frame{frame, {Kind: event.Python, Name: "main", File: "/srv/model.py", Line: 1000}}))
	}
	for id := range uint64(70_000) {
		region, devices := event.DRAM, []int{0}
		if id%5 == 0 {
			region = event.L1
		}
		if id%11 == 0 {
			devices = []int{0, 1}
		}
		e := pagetest.Buffer(event.Alloc, id, region, 1<<13*id, 1<<11*(1+id%3), stacks[id%uint64(len(stacks))], devices...)
		if e.TimeNs = 1e9 + id*1000; id%13 == 0 {
			e.BeforeAttach, e.Stack = true, nil
		}
		if events = append(events, e); id%2 == 0 {
			events = append(events, event.Event{
				Kind: event.Owner, TimeNs: e.TimeNs, PID: e.PID, BufferID: id, Object: e.Object, Cause: fmt.Sprintf("model.cache[%d]", id), Message: "bf16[32,32] TILE",
			})
		}
	}
	return events
}

// usesTypes is a program that is checked with the types of the package.
const usesTypes = `import ttmem


def largest(path: str) -> int:
    with ttmem.open(path, units=True) as run:
        state: ttmem.State = run.at("peak")
        began: int = run.metadata["began_ns"]
        kinds = [str(event["kind"]) for event in run.events(region="L1")]
        return state.time_ns - began + len(kinds)


with ttmem.step("forward") as s:
    ttmem.mark("warm")
    print(s.peaks["DRAM"] + s.chips[0]["L1"] + ttmem.max_memory_allocated(), s.left[0].calls)
`
