package tracer

// What the tests of native stacks share: programs of testdata/stack_native that
// keep account themselves of which functions have called which (shadow.h).

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// compile makes a program or, with -shared, a library of sources in
// testdata/stack_native. Its functions name themselves after the output file.
func compile(t *testing.T, compiler, output string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no %s", compiler)
	}
	args = append([]string{
		"-O2", "-pthread", fmt.Sprintf(`-DMODULE="%s"`, filepath.Base(output)), "-o", output,
	}, args...)
	cmd := exec.Command(compiler, args...)
	cmd.Dir = filepath.Join("testdata", "stack_native")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// nativeProgram is a running program that keeps account of its calls.
type nativeProgram struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	shadow string
}

// startProgram starts a program and waits until it says that it is ready.
func startProgram(t *testing.T, args ...string) *nativeProgram {
	t.Helper()
	p := &nativeProgram{Cmd: exec.Command(args[0], args[1:]...), shadow: filepath.Join(t.TempDir(), "shadow")}
	p.Env = append(os.Environ(), "SHADOW="+p.shadow)
	p.start(t)
	return p
}

// start starts the program, to be killed when the test ends, and waits until it
// says that it is ready.
func (p *nativeProgram) start(t *testing.T) {
	t.Helper()
	p.Stderr = os.Stderr
	var err error
	p.in, err = p.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := p.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	p.out = bufio.NewReader(out)
	qt.Assert(t, qt.IsNil(p.Start()))
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	qt.Assert(t, qt.Equals(p.line(t), "ready"))
}

func (p *nativeProgram) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	qt.Assert(t, qt.IsNil(err), qt.Commentf("the program's output has ended"))
	return strings.TrimSpace(line)
}

func (p *nativeProgram) tell(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	qt.Assert(t, qt.IsNil(err))
}

// shadowCall is a call of probed by the program's own account.
type shadowCall struct {
	tid   int
	what  string
	names []string // of probed's caller and so on, "function@module"
}

func readShadow(t *testing.T, path string) (list []shadowCall) {
	t.Helper()
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(text)) {
		first, names, _ := strings.Cut(strings.TrimSpace(line), "  ")
		tid, what, _ := strings.Cut(first, " ")
		n, err := strconv.Atoi(tid)
		qt.Assert(t, qt.IsNil(err))
		list = append(list, shadowCall{n, what, strings.Fields(names)})
	}
	return list
}

// glue are functions that keep no account: of the C++ library's headers, and
// where threads begin.
func glue(f *event.Frame) bool {
	return f.Symbol == "_start" || strings.Contains(f.Symbol, "_Function_handler") ||
		strings.HasPrefix(f.Symbol, "_ZL3wayi") ||
		strings.HasPrefix(f.Module, "libc.so") || strings.HasPrefix(f.Module, "libstdc++.so") ||
		strings.HasPrefix(f.Module, "libgcc_s.so") || strings.HasPrefix(f.Module, "ld-linux")
}

// named are the frames that keep account, as that has them.
func named(frames []event.Frame) (names []string) {
	for i := range frames {
		if f := &frames[i]; !glue(f) {
			// g++'s names for what is called from the same file, and for rare branches
			name := strings.TrimSuffix(strings.TrimSuffix(f.Symbol, ".localalias"), ".cold")
			if name == "" {
				name = fmt.Sprintf("%#x", f.Address)
			}
			names = append(names, name+"@"+f.Module)
		}
	}
	return names
}

// begins reports whether a stack goes on to where its thread began.
func begins(frames []event.Frame) bool {
	if len(frames) == 0 {
		return false
	}
	last := &frames[len(frames)-1]
	return last.Symbol == "_start" || strings.HasPrefix(last.Module, "libc.so")
}

// assertShadow compares all stacks, thread by thread, with the program's own
// account, and gives the number of those that are equal by what was called.
// different may say what is to be expected in place of the account.
func assertShadow(t *testing.T, calls []stackOf, want []shadowCall, different func(*shadowCall) (names []string, begins bool)) map[string]int {
	t.Helper()
	equal := make(map[string]int)
	byThread := make(map[int][]stackOf)
	for _, c := range calls {
		byThread[c.tid] = append(byThread[c.tid], c)
	}
	wrong := 0
	for i := range want {
		w := &want[i]
		rest := byThread[w.tid]
		if len(rest) == 0 {
			t.Fatalf("thread %d: call %d (%s) was not seen", w.tid, i, w.what)
		}
		frames := rest[0].stack.Frames()
		byThread[w.tid] = rest[1:]
		names, toStart := w.names, true
		if different != nil {
			names, toStart = different(w)
		}
		got := named(frames)
		if len(got) > 0 && strings.HasPrefix(got[0], "probed@") {
			got = got[1:]
		}
		if slices.Equal(got, names) && begins(frames) == toStart {
			equal[w.what]++
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%s:\n got %s\nwant %s", w.what, strings.Join(all(frames), " "), strings.Join(names, " "))
		}
	}
	for tid, rest := range byThread {
		if len(rest) > 0 {
			t.Errorf("thread %d: %d calls more than it made", tid, len(rest))
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d stacks are wrong", wrong, len(want))
	}
	return equal
}

func all(frames []event.Frame) (list []string) {
	for i := range frames {
		list = append(list, text(&frames[i]))
	}
	return list
}

// flavours are ways to build the same code.
var flavours = []struct {
	name string
	args []string
	rows bool
}{
	{"without-fp", []string{"-fomit-frame-pointer"}, true},
	{"with-fp", []string{"-fno-omit-frame-pointer"}, true},
	{"without-rows", []string{
		"-fno-omit-frame-pointer", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
	}, false},
}

// callsProgram builds testdata/stack_native/calls.cc in all flavours and starts a
// program that runs them once it is told to.
func callsProgram(t *testing.T, compiler string) (p *nativeProgram, dir string) {
	t.Helper()
	dir = t.TempDir()
	exe := filepath.Join(dir, "main")
	compile(t, compiler, exe, "-rdynamic", "main.cc", "shadow.cc", "-ldl")
	args := []string{exe}
	for _, f := range flavours {
		lib := filepath.Join(dir, f.name+".so")
		compile(t, compiler, lib, append(f.args, "-std=c++17", "-fPIC", "-shared", "calls.cc")...)
		args = append(args, lib)
	}
	return startProgram(t, args...), dir
}

// cut is the end that is expected of two stacks: the account's, or earlier.
func cut(c *shadowCall) (names []string, begins bool) {
	huge := slices.Index(c.names, "huge_frame@without-rows.so")
	switch {
	case c.what == "too deep": // 128 frames, probed's among them
		return c.names[:127], false
	case c.what == "frame of more than 1 MiB" && huge >= 0:
		return c.names[:huge+1], false // what rbp points to is not believed if it is so far away
	}
	return c.names, true
}

// TestStackOfAllCalls: every way to call a function that compilers make, in code
// built with and without frame pointers and without unwind rows, gives the stack
// that the program itself tells of; and the program lives.
func TestStackOfAllCalls(t *testing.T) {
	for _, compiler := range []string{"clang++-19", "g++"} {
		t.Run(compiler, func(t *testing.T) {
			p, dir := callsProgram(t, compiler)
			trace := traceStacks(t, p.Process.Pid, filepath.Join(dir, "main"), "probed", Options{})
			p.tell(t, "go")
			qt.Assert(t, qt.IsNil(p.Wait()))
			equal := assertShadow(t, trace.stop(), readShadow(t, p.shadow), cut)
			t.Log("equal:", equal)
			ends, _ := trace.StackEnds()
			t.Log(ends)
			qt.Check(t, qt.Equals(ends["more than 128 frames"], uint64(len(flavours))))
			qt.Check(t, qt.Equals(ends["code without unwind rows"], 2)) // the huge frame's
		})
	}
}

// TestStackFromCodeWithoutRows: a probe in code without unwind rows stands before
// rbp points to the function's own frame; its caller is there all the same.
func TestStackFromCodeWithoutRows(t *testing.T) {
	p, dir := callsProgram(t, "clang++-19")
	trace := traceStacks(t, p.Process.Pid, filepath.Join(dir, "without-rows.so"), "leaf", Options{})
	p.tell(t, "go")
	qt.Assert(t, qt.IsNil(p.Wait()))
	var want []shadowCall
	for _, c := range readShadow(t, p.shadow) {
		if len(c.names) > 0 && c.names[0] == "leaf@without-rows.so" {
			want = append(want, c)
		}
	}
	t.Log("equal:", assertShadow(t, trace.stop(), want, func(c *shadowCall) ([]string, bool) {
		if c.what == "too deep" { // leaf is the first of 128
			return c.names[:128], false
		}
		return cut(c)
	}))
}

// loadProgram builds a program that does what it is told, and two libraries for it
// to load that have other functions and frames at the same addresses.
func loadProgram(t *testing.T) (p *nativeProgram, exe string, libs [2]string) {
	t.Helper()
	dir := t.TempDir()
	exe = filepath.Join(dir, "load")
	compile(t, "clang++-19", exe, "-rdynamic", "load.cc", "shadow.cc", "-ldl")
	for i, args := range [][]string{{"first", "200"}, {"other", "136"}} {
		libs[i] = filepath.Join(dir, args[0]+".so")
		compile(t, "clang++-19", libs[i], "-fPIC", "-shared", "-DNAME="+args[0], "-DROOM="+args[1], "loaded.cc")
	}
	return startProgram(t, exe), exe, libs
}

// do has the program do something, and gives its answer.
func (p *nativeProgram) do(t *testing.T, format string, args ...any) string {
	t.Helper()
	p.tell(t, fmt.Sprintf(format, args...))
	return p.line(t)
}

// callUntilKnown has the program call what it has loaded until its stacks go on to
// the thread's start.
func (p *nativeProgram) callUntilKnown(t *testing.T, trace *stackTrace) {
	t.Helper()
	for range 200 {
		seen := len(trace.seen())
		p.do(t, "call 1 settling")
		for range 100 {
			if len(trace.seen()) > seen {
				break
			}
			time.Sleep(pollInterval)
		}
		calls := trace.seen()
		qt.Assert(t, qt.IsTrue(len(calls) > seen), qt.Commentf("the call was not seen"))
		if begins(calls[len(calls)-1].stack.Frames()) {
			return
		}
	}
	calls := trace.seen()
	ends, _ := trace.StackEnds()
	t.Fatalf("the stacks do not become complete: %v, %v", all(calls[len(calls)-1].stack.Frames()), ends)
}

// seen are the calls until now.
func (s *stackTrace) seen() []stackOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// assertNothingMadeUp allows stacks that end too early, and nothing else.
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

// TestStackOfLibraryLoadedLater: stacks through a library that is loaded while its
// process is traced are complete once its rows are, and end early before.
func TestStackOfLibraryLoadedLater(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	p.do(t, "open 200 %s", libs[0])
	p.callUntilKnown(t, trace)
	before := len(trace.seen())
	p.do(t, "call 500 known")
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.shadow)
	complete, early := assertNothingMadeUp(t, calls[:before], want[:before])
	t.Logf("at once: %d stacks complete, %d ended early", complete, early)
	t.Log("then equal:", assertShadow(t, calls[before:], want[before:], nil))
	t.Log(trace.StackEnds())
}

// TestStackOfLibraryInPlaceOfAnother: no stack has the functions or the frames of a
// library that another has taken the place of.
func TestStackOfLibraryInPlaceOfAnother(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	var places [2]string
	for i := range 10 {
		places[i%2] = p.do(t, "open 100 %s", libs[i%2])
		p.callUntilKnown(t, trace)
		p.do(t, "call 100 known")
		p.do(t, "close")
	}
	if places[0] != places[1] {
		t.Skipf("the libraries were not loaded at the same place: %v", places)
	}
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.shadow)
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

// TestStacksThatAreReused: what is remembered from one stack to the next never
// shows in another: 100,000 stacks of frames that move, of alternating call sites
// and over stale return addresses equal the program's own account, to the call
// site.
func TestStacksThatAreReused(t *testing.T) {
	for _, compiler := range []string{"clang++-19", "g++"} {
		t.Run(compiler, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), "reuse")
			compile(t, compiler, exe, "-rdynamic", "-fomit-frame-pointer", "reuse.cc", "shadow.cc")
			p := startProgram(t, exe, "50000")
			trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
			p.tell(t, "go")
			qt.Assert(t, qt.IsNil(p.Wait()))
			calls, want := trace.stop(), readShadow(t, p.shadow)
			sites := siteAddresses{}
			sites.learn(t, calls, want)
			equal := assertShadow(t, calls, want, func(c *shadowCall) ([]string, bool) {
				return slices.DeleteFunc(slices.Clone(c.names), isSite), true
			})
			different := make(map[uint64]bool)
			for _, c := range calls {
				different[c.ids.Native] = true
			}
			t.Logf("equal: %v, of which %d different; %d call sites", equal, len(different), len(sites))
			t.Log(trace.StackEnds())
			qt.Check(t, qt.Equals(equal["call"], 50000))
		})
	}
}

func isSite(name string) bool { return strings.HasPrefix(name, "site") }

// siteAddresses are the places from which two_sites calls, by the account.
type siteAddresses map[uint64]string

// learn checks that a place is always the same one by the account.
func (s siteAddresses) learn(t *testing.T, calls []stackOf, want []shadowCall) {
	t.Helper()
	byThread := make(map[int][]stackOf)
	for _, c := range calls {
		byThread[c.tid] = append(byThread[c.tid], c)
	}
	wrong := 0
	for _, w := range want {
		rest := byThread[w.tid]
		if len(rest) == 0 {
			return // assertShadow tells
		}
		byThread[w.tid] = rest[1:]
		var places []uint64
		for _, f := range rest[0].stack.Frames() {
			if strings.HasPrefix(f.Symbol, "two_sites") {
				places = append(places, f.Address)
			}
		}
		for _, name := range w.names {
			if !isSite(name) || len(places) == 0 {
				continue
			}
			if known, ok := s[places[0]]; ok && known != name {
				wrong++
			}
			s[places[0]] = name
			places = places[1:]
		}
	}
	qt.Check(t, qt.Equals(wrong, 0), qt.Commentf("call sites taken for others"))
	qt.Check(t, qt.IsTrue(len(s) >= 2))
}

// TestStackAfterUnloading: a process that unloads code and does nothing else has
// its stacks taken again.
func TestStackAfterUnloading(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	for range 5 {
		p.do(t, "open 1 %s", libs[0])
		p.callUntilKnown(t, trace)
		p.do(t, "close")
		p.callUntilKnown(t, trace)
	}
	before := len(trace.seen())
	p.do(t, "call 100 known")
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.shadow)
	assertNothingMadeUp(t, calls, want)
	t.Log("equal:", assertShadow(t, calls[before:], want[before:], nil))
}

// TestStackOfChildren: the children of a traced process have stacks, from their
// first call on and after their parent has ended.
func TestStackOfChildren(t *testing.T) {
	p, exe, libs := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{Children: true})
	p.do(t, "open 1 %s", libs[0])
	p.callUntilKnown(t, trace)
	before := len(trace.seen())
	qt.Assert(t, qt.Equals(p.do(t, "fork 0 at-once"), "0"))
	qt.Assert(t, qt.Equals(p.do(t, "fork 300 later"), "0"))
	p.do(t, "call 10 parent")
	qt.Assert(t, qt.Equals(p.do(t, "leave"), "child"))
	time.Sleep(300 * time.Millisecond)
	qt.Assert(t, qt.Equals(p.do(t, "call 10 orphan"), "10"))
	p.callUntilKnown(t, trace)
	qt.Assert(t, qt.Equals(p.do(t, "call 10 orphan-known"), "10"))
	p.in.Close()
	p.Wait()
	time.Sleep(100 * time.Millisecond)
	calls, want := trace.stop(), readShadow(t, p.shadow)
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

// TestStackOfOtherProgram: a traced process that becomes another program has that
// one's stacks.
func TestStackOfOtherProgram(t *testing.T) {
	p, exe, libs := loadProgram(t)
	other := filepath.Join(filepath.Dir(exe), "other")
	compile(t, "clang++-19", other, "-rdynamic", "load.cc", "shadow.cc", "-ldl", "-fno-omit-frame-pointer", "-O1")
	trace := traceStacks(t, p.Process.Pid, other, "probed", Options{})
	p.do(t, "call 5 ignored") // of the first program, in which there is no probe
	qt.Assert(t, qt.Equals(p.do(t, "exec 0 %s", other), "ready"))
	before := len(trace.seen())
	p.do(t, "open 5 %s", libs[1])
	p.callUntilKnown(t, trace)
	known := len(trace.seen())
	p.do(t, "call 100 known")
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls := trace.stop()
	want := slices.DeleteFunc(readShadow(t, p.shadow), func(c shadowCall) bool { return c.what == "ignored" })
	assertNothingMadeUp(t, calls, want)
	qt.Assert(t, qt.Equals(before, 0))
	t.Log("equal:", assertShadow(t, calls[known:], want[known:], nil))
}
