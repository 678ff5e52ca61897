package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// saidStack is a call recorded by programs/stacks.py.
type saidStack struct {
	Kind   string
	TID    int
	TimeNs uint64 `json:"time_ns"`
	Frames []saidFrame
}

// saidFrame is name, file and line.
type saidFrame struct {
	name, file string
	line       int
}

func (f *saidFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.file, &f.line})
}

// The Python part of each allocation's stack equals the program's own traceback, with
// ttnn's own Python inside of it.
func TestPythonPartOfTTNN(t *testing.T) {
	for _, release := range []struct{ version, python string }{
		{"0.81.1", "3.10"}, {"0.81.1", "3.12"}, {"0.76.0", "3.10"},
	} {
		if !tracetest.Tests(release.version) {
			continue
		}
		t.Run(release.version+" "+release.python, func(t *testing.T) { assertStacksOfTTNN(t, release.version, release.python) })
	}
}

// assertStacksOfTTNN runs the program that allocates in all kinds of calls.
func assertStacksOfTTNN(t *testing.T, version, python string) {
	t.Helper()
	env := setup(t, version, python)
	file := filepath.Join(t.TempDir(), "stacks.jsonl")
	t.Setenv("TTMEM_STACKS", file)
	run := traceRun(t, env, "n150", program(t, "stacks.py"))
	qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
	for _, line := range lines(run.stderr) {
		if strings.HasPrefix(line, "refused: ") || strings.Contains(line, "stack") {
			t.Log(line)
		}
	}
	threads := readStacks(t, file)
	n := compareTTNN(t, run.events, threads)
	t.Logf("%d allocations in %d calls of %d kinds: %d of %d stacks equal, %d frames",
		n.allocations, n.calls, n.kinds, n.equal, n.allocations, n.frames)

	// C++ called Python: the library's frames are also outside of Python's
	qt.Check(t, qt.IsTrue(n.calledBack > 0), qt.Commentf("no stack has frames of ttnn between Python's"))

	whole, all := 0, 0
	ends := make(map[string]int)
	for i := range run.events {
		if said := threads[run.events[i].PID]; said == nil || run.events[i].TimeNs < said[0].TimeNs {
			continue // of the program while it waits for whole stacks
		}
		if frames := run.events[i].Stack.Frames(); len(frames) > 0 && !recursive(frames) {
			all++
			if end, ok := atStart(frames); ok {
				whole++
			} else {
				ends[end]++
			}
		}
	}
	t.Logf("%d of %d native stacks reach the thread's start; others end at %v", whole, all, ends)
	qt.Check(t, qt.IsTrue(float64(whole) >= 0.999*float64(all)),
		qt.Commentf("%d of %d native stacks do not reach the thread's start, but end at %v", all-whole, all, ends))
}

func readStacks(t *testing.T, path string) (threads map[int][]saidStack) {
	t.Helper()
	f, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	threads = make(map[int][]saidStack)
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var s saidStack
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return threads
		}
		qt.Assert(t, qt.IsNil(err))
		threads[s.TID] = append(threads[s.TID], s)
	}
}

// compared counts comparisons.
type compared struct {
	calls, kinds, allocations, equal, frames int
	// calledBack counts stacks with library frames around Python frames.
	calledBack int
}

func compareTTNN(t *testing.T, events []event.Event, threads map[int][]saidStack) (n compared) {
	t.Helper()
	kinds := make(map[string]bool)
	met := make(map[*saidStack]bool)
	failures := 0
	for i := range events {
		e := &events[i]
		if e.Kind != event.Alloc {
			continue
		}
		thread := threads[e.TID]
		at, _ := slices.BinarySearchFunc(thread, e.TimeNs, func(s saidStack, ns uint64) int {
			if s.TimeNs <= ns {
				return -1
			}
			return 1
		})
		if at == 0 || thread[at-1].Kind == "" {
			continue // of the device itself
		}
		s := &thread[at-1]
		n.allocations++
		met[s], kinds[s.Kind] = true, true
		n.frames += len(s.Frames)
		if err := s.equal(e.Stack.Frames()); err != nil {
			if failures++; failures <= 10 {
				t.Errorf("%s: %v", s.Kind, err)
			}
			continue
		}
		n.equal++
		if s.Kind == "called_by_nanobind" && calledBack(e.Stack.Frames()) {
			n.calledBack++
		}
	}
	for _, thread := range threads {
		for i := range thread {
			if s := &thread[i]; s.Kind != "" {
				n.calls++
				if !met[s] && len(s.Frames) > 0 {
					t.Errorf("%s: nothing was allocated at %v", s.Kind, s.Frames[0])
				}
			}
		}
	}
	n.kinds = len(kinds)
	qt.Check(t, qt.Equals(n.equal, n.allocations))
	return n
}

// equal compares the program's frames with the outer ones of an event: the inner ones are
// ttnn's.
func (s *saidStack) equal(frames []event.Frame) error {
	var got []saidFrame
	for _, f := range frames {
		if f.Kind == event.Python {
			got = append(got, saidFrame{f.Name, f.File, f.Line})
		}
	}
	inner := len(got) - len(s.Frames)
	if inner < 0 || !slices.Equal(got[inner:], s.Frames) {
		return fmt.Errorf("Python's part is\n%+v, not\n%+v", got, s.Frames)
	}
	for _, f := range got[:inner] {
		if !strings.Contains(f.file, "/ttnn/") {
			return fmt.Errorf("%+v is no frame of ttnn", f)
		}
	}
	return nil
}

// recursive reports whether a stack is deeper than native stacks can be: 3.10 needs several
// native calls for each Python call.
func recursive(frames []event.Frame) bool {
	n := 0
	for _, f := range frames {
		if f.Kind == event.Python {
			n++
		}
	}
	return n > 40
}

// calledBack reports whether a function of ttnn's library called one of the Python frames.
func calledBack(frames []event.Frame) bool {
	for i, f := range frames {
		if i > 0 && f.Kind == event.Native && strings.Contains(f.Module, "ttnn") && frames[i-1].Kind == event.Python {
			return true
		}
	}
	return false
}

// atStart reports whether a stack begins at the thread's start: in the program's first
// function, or in libc's first of a thread. A program that contains the interpreter does
// not show its first function.
func atStart(frames []event.Frame) (string, bool) {
	for _, f := range slices.Backward(frames) {
		if f.Kind != event.Native {
			return "python", false
		}
		switch {
		case f.Name == "_start", strings.HasPrefix(f.Name, "__libc_start_main"), strings.Contains(f.Name, "clone"):
			return f.Name, true
		case f.Name == "" && f.Module == "libc.so.6": // stripped of its names
			return f.Module, true
		}
		return f.Name + " in " + f.Module, false
	}
	return "nothing", false
}
