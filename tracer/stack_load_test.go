package tracer

// Stacks of programs whose code changes: libraries loaded and unloaded, forks, exec,
// deleted files.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// loadProgram builds a program that obeys commands, and two libraries with different
// functions and frames at the same addresses.
func loadProgram(t *testing.T) (p *tracetest.Program, exe string, libs [2]string) {
	t.Helper()
	dir := t.TempDir()
	exe = filepath.Join(dir, "load")
	compile(t, "clang++-19", exe, "-rdynamic", "load.cc", "shadow.cc", "-ldl")
	for i, args := range [][]string{{"first", "200"}, {"other", "136"}} {
		libs[i] = filepath.Join(dir, args[0]+".so")
		compile(t, "clang++-19", libs[i], "-fPIC", "-shared", "-DNAME="+args[0], "-DROOM="+args[1], "loaded.cc")
	}
	return tracetest.Start(t, exe), exe, libs
}

// callUntilKnown makes the program call its library until stacks reach the thread's start.
func callUntilKnown(t *testing.T, p *tracetest.Program, trace *stackTrace) {
	t.Helper()
	var last stackOf
	for range 200 {
		began := host.Now() // earlier calls may be delivered later
		p.Do(t, "call 1 settling")
		for range 1000 {
			if calls := trace.seen(); len(calls) > 0 {
				last = calls[len(calls)-1]
			}
			if last.timeNs > began {
				break
			}
			time.Sleep(pollInterval)
		}
		qt.Assert(t, qt.IsTrue(last.timeNs > began), qt.Commentf("the call was not seen"))
		if begins(last.stack.Frames()) {
			return
		}
	}
	ends, _ := trace.StackEnds()
	t.Fatalf("the stacks do not become complete: %v, %v", all(last.stack.Frames()), ends)
}

// settle waits until no more stacks are under way.
func (s *stackTrace) settle() {
	for before := -1; len(s.seen()) != before; time.Sleep(20 * pollInterval) {
		before = len(s.seen())
	}
}

// seen are the calls until now.
func (s *stackTrace) seen() []stackOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// assertNothingMadeUp allows stacks that end too early, but no wrong frame.
func assertNothingMadeUp(t *testing.T, calls []stackOf, want []shadowCall) (complete, early int) {
	t.Helper()
	qt.Assert(t, qt.HasLen(calls, len(want)))
	wrong := 0
	for i, w := range want {
		got := named(calls[i].stack.Frames())
		if len(got) > 0 {
			got = got[1:] // probed
		}
		switch {
		case slices.Equal(got, w.names):
			complete++
		case len(got) < len(w.names) && slices.Equal(got, w.names[:len(got)]):
			early++
		default:
			if wrong++; wrong <= 5 {
				t.Errorf("call %d, %s:\n got %s\nwant %s", i, w.what, strings.Join(all(calls[i].stack.Frames()), " "), strings.Join(w.names, " "))
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d stacks have frames that are made up", wrong, len(want))
	}
	return complete, early
}

// Stacks through a library that is loaded during the trace end early until its rows are
// known, and are complete from then on.
func TestStackOfLibraryLoadedLater(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	p.Do(t, "open 200 %s", libs[0])
	callUntilKnown(t, p, trace)
	before := len(trace.seen())
	p.Do(t, "call 500 known")
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.Shadow)
	complete, early := assertNothingMadeUp(t, calls[:before], want[:before])
	t.Logf("at once: %d stacks complete, %d ended early", complete, early)
	t.Log("then equal:", assertShadow(t, calls[before:], want[before:], nil))
	t.Log(trace.StackEnds())
}

// No stack has functions or frames of an unloaded library whose place another library has
// taken.
func TestStackOfReplacedLibrary(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	var places [2]string
	for i := range 10 {
		places[i%2] = p.Do(t, "open 100 %s", libs[i%2])
		callUntilKnown(t, p, trace)
		p.Do(t, "call 100 known")
		p.Do(t, "close")
	}
	if places[0] != places[1] {
		t.Skipf("the libraries were not loaded at the same place: %v", places)
	}
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.Shadow)
	complete, early := assertNothingMadeUp(t, calls, want)
	t.Logf("%d stacks complete, %d ended early", complete, early)
	var known []shadowCall
	for _, w := range want {
		if w.what == "known" {
			known = append(known, w)
		}
	}
	qt.Check(t, qt.IsTrue(complete >= len(known)))
	t.Log(trace.StackEnds())
}

// Stacks of a process recover after it unloads code and does nothing else.
func TestStackAfterUnloading(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	for range 5 {
		p.Do(t, "open 1 %s", libs[0])
		callUntilKnown(t, p, trace)
		p.Do(t, "close")
		callUntilKnown(t, p, trace)
	}
	before := len(trace.seen())
	p.Do(t, "call 100 known")
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.Shadow)
	assertNothingMadeUp(t, calls, want)
	t.Log("equal:", assertShadow(t, calls[before:], want[before:], nil))
}

// Children of a traced process have stacks from their first call on, also after their
// parent has ended.
func TestStackOfChildren(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{Children: true})
	p.Do(t, "open 1 %s", libs[0])
	callUntilKnown(t, p, trace)
	before := len(trace.seen())
	qt.Assert(t, qt.Equals(p.Do(t, "fork 0 at-once"), "0"))
	qt.Assert(t, qt.Equals(p.Do(t, "fork 300 later"), "0"))
	p.Do(t, "call 10 parent")
	qt.Assert(t, qt.Equals(p.Do(t, "leave"), "child"))
	time.Sleep(300 * time.Millisecond)
	qt.Assert(t, qt.Equals(p.Do(t, "call 10 orphan"), "10"))
	callUntilKnown(t, p, trace)
	qt.Assert(t, qt.Equals(p.Do(t, "call 10 orphan-known"), "10"))
	p.In.Close()
	p.Wait()
	want := readShadow(t, p.Shadow)
	tracetest.Eventually(time.Minute, func() bool { return len(trace.seen()) >= len(want) })
	calls := trace.stop()
	qt.Assert(t, qt.Equals(len(calls), len(want)))
	ends := make(map[string][2]int)
	for i := before; i < len(calls); i++ {
		n := ends[want[i].what]
		names := named(calls[i].stack.Frames())
		switch {
		case len(names) > 1 && slices.Equal(names[1:], want[i].names):
			n[0]++
		case len(names) > 1 && !slices.Equal(names[1:], want[i].names[:min(len(names)-1, len(want[i].names))]):
			t.Errorf("%s: %v", want[i].what, all(calls[i].stack.Frames()))
			n[1]++
		default:
			n[1]++
		}
		ends[want[i].what] = n
	}
	t.Logf("complete and not: %v", ends)
	t.Log(trace.StackEnds())
	for _, what := range []string{"at-once", "later", "parent", "orphan-known"} {
		qt.Check(t, qt.Equals(ends[what][1], 0), qt.Commentf("%s", what))
	}
}

// After an exec, stacks are those of the new program.
func TestStackOfOtherProgram(t *testing.T) {
	p, exe, libs := loadProgram(t)
	other := filepath.Join(filepath.Dir(exe), "other")
	compile(t, "clang++-19", other, "-rdynamic", "load.cc", "shadow.cc", "-ldl", "-fno-omit-frame-pointer", "-O1")
	trace := traceStacks(t, p.Process.Pid, other, "probed", Options{})
	p.Do(t, "call 5 ignored") // in the first program, which has no probe
	qt.Assert(t, qt.Equals(p.Do(t, "exec 0 %s", other), "ready"))
	before := len(trace.seen())
	p.Do(t, "open 5 %s", libs[1])
	callUntilKnown(t, p, trace)
	known := len(trace.seen())
	p.Do(t, "call 100 known")
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls := trace.stop()
	want := slices.DeleteFunc(readShadow(t, p.Shadow), func(c shadowCall) bool { return c.what == "ignored" })
	assertNothingMadeUp(t, calls, want)
	qt.Assert(t, qt.Equals(before, 0))
	t.Log("equal:", assertShadow(t, calls[known:], want[known:], nil))
}

// Functions have names even if the program's file lies in another mount namespace and was
// deleted.
func TestStackOfDeletedFile(t *testing.T) {
	tracetest.NeedsRoot(t)
	dir := t.TempDir()
	exe := filepath.Join(dir, "load")
	compile(t, "clang++-19", exe, "-rdynamic", "load.cc", "shadow.cc", "-ldl")
	hidden := filepath.Join(dir, "hidden")
	qt.Assert(t, qt.IsNil(os.Mkdir(hidden, 0o755)))
	p := tracetest.Start(t, "unshare", "--mount", "sh", "-ec",
		`mount -t tmpfs none "$1"; cp "$0" "$1/elsewhere"; exec "$1/elsewhere"`, exe, hidden)
	inside := fmt.Sprintf("/proc/%d/root%s/elsewhere", p.Process.Pid, hidden)
	qt.Assert(t, qt.IsNil(os.Remove(inside)))

	trace := traceStacks(t, p.Process.Pid, fmt.Sprintf("/proc/%d/exe", p.Process.Pid), "probed", Options{})
	p.Do(t, "call 10 deleted")
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls := trace.stop()
	qt.Assert(t, qt.HasLen(calls, 10))
	for _, c := range calls {
		frames := c.stack.Frames()
		qt.Check(t, qt.Equals(frames[0].Name, "probed"))
		qt.Check(t, qt.Equals(frames[0].Module, "elsewhere"))
		qt.Check(t, qt.IsTrue(slices.ContainsFunc(frames, func(f event.Frame) bool { return f.Name == "main" })), qt.Commentf("%v", all(frames)))
		qt.Check(t, qt.IsTrue(begins(frames)), qt.Commentf("%v", all(frames)))
	}
}
