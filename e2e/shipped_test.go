package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// shipped are ways in which tt-metal reaches a process, made from the library of the wheel. Each of them is traced, with
// all figures, call stacks and owners, or says why not. docs/shipped.md has the table.
var shipped = []struct {
	name, file, how string
	make            func(t testing.TB, library []byte, needed map[string]bool) []byte
	untraced        string // the reason; "": it is traced
	part            string // what is missing if it is traced in part, with what that costs
}{
	{name: "without .symtab", file: "libtt_metal.so", how: "file", make: withoutSymtab},
	{name: "without section headers", file: "libtt_metal.so", how: "file", make: func(_ testing.TB, library []byte, _ map[string]bool) []byte {
		return tracetest.Unsectioned(library)
	}},
	{name: "plugin", file: "pjrt_plugin.so", how: "file", make: withoutSymtab},
	{name: "deleted", file: "plugin.so", how: "deleted", make: withoutSymtab},
	{name: "memfd", file: "plugin.so", how: "memfd", make: func(t testing.TB, library []byte, needed map[string]bool) []byte {
		return tracetest.Unsectioned(withoutSymtab(t, library, needed))
	}},
	{
		name: "exports what ttnn needs", file: "libtt_metal.so", how: "file",
		make: func(t testing.TB, library []byte, needed map[string]bool) []byte {
			return tracetest.Stripped(t, library, func(name string) bool { return needed[name] })
		},
		untraced: "too few of tt-metal's functions have names to find these fields of Buffer: owns_data_, allocator_, hooked_allocation_",
	},
	{
		name: "allocations hidden", file: "libtt_metal.so", how: "file", make: hides("12GraphTracker14track_allocateE"),
		part: "buffer_allocated: allocations are not seen",
	},
	{
		name: "frees hidden", file: "libtt_metal.so", how: "file", make: hides("15deallocate_implE"),
		part: "buffer_deallocate: freed buffers look live",
	},
	{name: "exports nothing", file: "plugin.so", how: "alone", make: exportsNothing, untraced: stripped},
	{
		name: "exports nothing, without section headers", file: "plugin.so", how: "alone",
		make: func(t testing.TB, library []byte, needed map[string]bool) []byte {
			return tracetest.Unsectioned(exportsNothing(t, library, needed))
		},
		untraced: stripped,
	},
}

const stripped = "it contains tt-metal, whose symbols are stripped: it has no .symtab, and exports no functions of tt-metal"

func withoutSymtab(t testing.TB, library []byte, _ map[string]bool) []byte {
	return tracetest.Stripped(t, library, func(string) bool { return true })
}

// hides makes a library that exports all but the functions with a part in their names.
func hides(part string) func(t testing.TB, library []byte, _ map[string]bool) []byte {
	return func(t testing.TB, library []byte, _ map[string]bool) []byte {
		return tracetest.Stripped(t, library, func(name string) bool { return !strings.Contains(name, part) })
	}
}

func exportsNothing(t testing.TB, library []byte, _ map[string]bool) []byte {
	return tracetest.Stripped(t, library, func(string) bool { return false })
}

// shippedFrom is the release of which copies are made, and its library.
func shippedFrom(t *testing.T) (env *rig.Env, library []byte) {
	t.Helper()
	env = setup(t, "0.81.1", "3.10")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	return env, library
}

// TestShipped runs a program on each of them, under `ttmem run` and with a late attach, and asks the doctor.
func TestShipped(t *testing.T) {
	t.Parallel()
	env, library := shippedFrom(t)
	needed := make(map[string]bool) // by ttnn's other files
	for _, pattern := range []string{"_ttnncpp.so", "../../_ttnn.*.so"} {
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(env.Library), pattern))
		qt.Assert(t, qt.HasLen(files, 1))
		tracetest.Mentioned(t, files[0], needed)
	}
	line := fmt.Sprintf("hold.py:%d", markedLines(t, program(t, "hold.py"))["held"])
	for _, way := range shipped {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), way.file)
			put := func() {
				qt.Assert(t, qt.IsNil(os.WriteFile(path, way.make(t, library, needed), 0o755)))
			}
			args := []string{program(t, "shipped.py"), path, way.how, program(t, "hold.py"), "3", "64"}

			put()
			if way.how != "alone" { // without ttnn there is nothing to run
				run := traceRun(t, env, rig.N150, args...)
				// each file is one that ttmem does not know, and it says so if a busy host lets it read that too late
				isLate := func() bool { return isLate(run.events) || strings.Contains(run.stderr, "call stacks that end early") }
				for tries := 2; tries > 0 && isLate(); tries-- {
					t.Log(run.stderr)
					put()
					run = traceRun(t, env, rig.N150, args...)
				}
				qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
				if way.part != "" {
					qt.Check(t, qt.StringContains(run.stderr, path+", of user 0: "+way.part))
					qt.Check(t, qt.StringContains(unwrapped(run.stderr), "1 event lost (library traced in part)"))
					return
				}
				checkShipped(t, &run, path, line, way.untraced)
				put()
			}

			pid := startHolding(t, env.Command(t.Context(), rig.N150, args...))
			var found struct {
				Processes []struct {
					PID                int
					Refused            string
					TTMetal            []string `json:"tt_metal"`
					Python             string
					NoFrames, NoOwners string
				}
				Libraries []struct {
					Path, Untraced, Release string
					Deleted                 bool
					Missing                 []struct{ Name string }
				}
			}
			stdout, stderr, status := runTtmem(t, nil, "doctor", "--json", fmt.Sprint(pid))
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(stdout), &found)), qt.Commentf("%s", stderr))
			pagetest.CheckSchema(t, "doctor", stdout)
			qt.Assert(t, qt.HasLen(found.Processes, 1))
			qt.Assert(t, qt.HasLen(found.Libraries, 1), qt.Commentf("%s", stdout))
			qt.Check(t, qt.Equals(found.Processes[0].PID, pid))
			qt.Check(t, qt.Equals(found.Processes[0].Python, "3.10"))
			qt.Check(t, qt.Equals(found.Processes[0].Refused, ""))
			qt.Check(t, qt.Equals(found.Libraries[0].Deleted, way.how == "deleted" || way.how == "memfd"))
			qt.Check(t, qt.Equals(found.Libraries[0].Untraced, way.untraced))

			owners, stderr, _ := runTtmem(t, nil, "dump", "-p", fmt.Sprint(pid), "--by", "owner", "--json")
			if way.untraced != "" {
				qt.Check(t, qt.Equals(status, 1))
				qt.Check(t, qt.StringContains(stderr, fmt.Sprintf("in process %d could not be traced: %s", pid, way.untraced)))
				return
			}
			qt.Check(t, qt.Equals(status, 0))
			qt.Check(t, qt.HasLen(found.Libraries[0].Missing, 0))
			var dump struct {
				Groups []struct {
					Key     string
					Buffers int
				}
			}
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(owners), &dump)), qt.Commentf("%s", stderr))
			qt.Assert(t, qt.HasLen(dump.Groups, 1), qt.Commentf("%s", owners))
			qt.Check(t, qt.Equals(dump.Groups[0].Key, "tensors[*]"))
			qt.Check(t, qt.Equals(dump.Groups[0].Buffers, 3))
		})
	}
}

// checkShipped checks a recording of hold.py: its buffers with their call stacks, or why they are missing.
func checkShipped(t *testing.T, run *traced, path, line, untraced string) {
	t.Helper()
	held, lost := 0, 0
	for i := range run.events {
		switch e := &run.events[i]; e.Kind {
		case event.Alloc:
			if slices.ContainsFunc(e.Stack.Frames(), func(f event.Frame) bool { return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line) == line }) {
				held++
			}
		case event.Lost:
			lost++
			qt.Check(t, qt.Equals(e.Cause, "library not traced"))
		}
	}
	if untraced == "" {
		qt.Check(t, qt.Equals(held, 3), qt.Commentf("%s", run.stderr))
		qt.Check(t, qt.Equals(lost, 0))
		return
	}
	qt.Check(t, qt.Equals(held, 0))
	qt.Check(t, qt.Equals(lost, 1))
	qt.Check(t, qt.StringContains(run.stderr, path+" in process "))
	qt.Check(t, qt.StringContains(run.stderr, " could not be traced: "+untraced))
	qt.Check(t, qt.StringContains(unwrapped(run.stderr), "1 event lost (library not traced)"))
	qt.Check(t, qt.IsFalse(strings.Contains(run.stderr, "no tt-metal library was seen")), qt.Commentf("%s", run.stderr))
}

// TestEndedBeforeItsLibraryWasRead: a program that ends as soon as it has mapped a library with an unusual name is a loss, as
// nobody can say what it did: its own command, and one of a shell.
func TestEndedBeforeItsLibraryWasRead(t *testing.T) {
	t.Parallel()
	_, library := shippedFrom(t)
	for how, want := range map[string][]string{
		"kept": {"process ended before its library was traced"},
		// ttmem may have opened it in time
		"deleted": {"process ended before its library was traced", "process ended before its code was read"},
	} {
		for _, under := range [][]string{nil, {"sh", "-c", `"$@"; true`, "sh"}} {
			file, recording := filepath.Join(t.TempDir(), "plugin.so"), filepath.Join(t.TempDir(), "run.ttmem")
			qt.Assert(t, qt.IsNil(os.WriteFile(file, library, 0o700)))
			args := slices.Concat([]string{"run", "-o", recording, "--"}, under, []string{"python3", program(t, "maps_and_ends.py"), file, how})
			_, stderr, status := runTtmem(t, nil, args...)
			qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
			ended := make(map[int]bool)
			var causes []string
			for _, e := range readEvents(t, recording) {
				switch e.Kind {
				case event.Lost:
					causes = append(causes, e.Cause)
				case event.ProcessExit:
					ended[e.PID] = true
				}
			}
			qt.Assert(t, qt.HasLen(causes, 1), qt.Commentf("%s %v: %s", how, under, stderr))
			qt.Check(t, qt.SliceContains(want, causes[0]))
			qt.Check(t, qt.HasLen(ended, 1))
		}
	}
}

// unwrapped is a text as one line.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// startHolding starts a program, and returns its process once it holds what it allocates.
func startHolding(t *testing.T, cmd *exec.Cmd) (pid int) {
	t.Helper()
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "holding" {
			return cmd.Process.Pid
		}
	}
	t.Fatal("the program ended")
	return 0
}

// TestWithoutPython: the buffers of a C++ program have names and lines, and no owners, which is said.
func TestWithoutPython(t *testing.T) {
	t.Parallel()
	env, dir := setup(t, "0.81.1", "3.10"), t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(dir), 0o755))) // lines are read of files that all users may read
	libraries := filepath.Dir(env.Library)
	exe := filepath.Join(dir, "buffers")
	tracetest.Compile(t, dir, "g++", exe, "-std=c++20", "-g", program(t, "buffers.cpp"), "-L"+libraries, "-l:libtt_metal.so",
		"-Wl,--allow-shlib-undefined", "-Wl,-rpath,"+libraries)
	under := env.Command(t.Context(), rig.N150, "-c", "")
	environ := append(under.Env, "TT_METAL_RUNTIME_ROOT="+filepath.Join(env.SitePackages, "ttnn"))

	file := filepath.Join(dir, "run.ttmem")
	run := exec.Command(ttmem, "run", "-o", file, "--", exe, "5", "1048576")
	run.Env = environ
	out, err := run.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	var dump struct {
		Groups []struct {
			Key     string
			Buffers int
		}
	}
	page := ask(t, "dump", file, "--at", "peak", "--by", "line", "--json")
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(page), &dump)))
	qt.Assert(t, qt.HasLen(dump.Groups, 1), qt.Commentf("%s", page))
	qt.Check(t, qt.Equals(dump.Groups[0].Buffers, 5))
	qt.Check(t, qt.StringContains(dump.Groups[0].Key, fmt.Sprintf("buffers.cpp:%d Cache::fill", markedLines(t, program(t, "buffers.cpp"))["held"])))

	held := exec.CommandContext(t.Context(), exe, "5", "1048576")
	held.Env = environ
	pid := startHolding(t, held)
	stdout, stderr, status := runTtmem(t, nil, "doctor", fmt.Sprint(pid))
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Check(t, qt.StringContains(stdout, "  frames    those of C++ only: it runs no Python\n  owners    none: it runs no Python\n"))
	qt.Check(t, qt.StringContains(stdout, "  C++ lines debug information in buffers"))
	stdout, stderr, _ = runTtmem(t, nil, "dump", "-p", fmt.Sprint(pid), "--by", "owner")
	qt.Check(t, qt.StringContains(stdout, "(owner not known)"))
	qt.Check(t, qt.StringContains(stderr, "5 of 5 buffers (5.0 MiB) have no owner: 5 of processes that run no Python"))
}
