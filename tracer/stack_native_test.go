package tracer

// Shared by the tests of native stacks: the programs of testdata/stack_native record which
// functions call which (shadow.h).

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// compiled is what compile has built so far, by compiler, name and arguments.
var compiled = struct {
	sync.Mutex
	files map[string][]byte
}{files: make(map[string][]byte)}

// compile builds a program or, with -shared, a library from sources in
// testdata/stack_native, each once. Its functions are named after the output file.
func compile(t *testing.T, compiler, output string, args ...string) {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	key := fmt.Sprint(compiler, filepath.Base(output), args)
	if file, ok := compiled.files[key]; ok {
		install := exec.Command("install", "-m", "755", "/dev/stdin", output) // a file that this process writes may be busy
		install.Stdin = bytes.NewReader(file)
		out, err := install.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		return
	}
	tracetest.Compile(t, filepath.Join("testdata", "stack_native"), compiler, output, append([]string{
		"-pthread", fmt.Sprintf(`-DMODULE="%s"`, filepath.Base(output)),
	}, args...)...)
	file, err := os.ReadFile(output)
	qt.Assert(t, qt.IsNil(err))
	compiled.files[key] = file
}

// shadowCall is a call of probed as the program recorded it.
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

// named returns the frames of functions that record their calls, in the form of the record.
func named(frames []event.Frame) (names []string) {
	for i := range frames {
		if f := &frames[i]; !glue(f) {
			// g++'s suffixes for calls within a file and for rare branches
			name := strings.TrimSuffix(strings.TrimSuffix(f.Symbol, ".localalias"), ".cold")
			if name == "" {
				name = fmt.Sprintf("%#x", f.Address)
			}
			names = append(names, name+"@"+f.Module)
		}
	}
	return names
}

// begins reports whether a stack reaches the thread's start.
func begins(frames []event.Frame) bool {
	if len(frames) == 0 {
		return false
	}
	last := &frames[len(frames)-1]
	return last.Symbol == "_start" || strings.HasPrefix(last.Module, "libc.so")
}

// assertShadow compares all stacks, thread by thread, with the program's record, and
// returns the number of equal ones by kind of call. different may replace the expected
// stack.
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

// callsProgram builds testdata/stack_native/calls.cc in all flavours and starts a program
// that runs them on command.
func callsProgram(t *testing.T, compiler string) (p *tracetest.Program, dir string) {
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
	return tracetest.Start(t, args...), dir
}

// cut returns where two kinds of stacks are expected to end: as recorded, or earlier.
func cut(c *shadowCall) (names []string, begins bool) {
	huge := slices.Index(c.names, "huge_frame@without-rows.so")
	switch {
	case c.what == "too deep": // 128 frames, including probed
		return c.names[:127], false
	case c.what == "frame of more than 1 MiB" && huge >= 0:
		return c.names[:huge+1], false // rbp is ignored if it points that far away
	}
	return c.names, true
}

// Every kind of call that compilers emit, in code with and without frame pointers and
// unwind rows, gives the recorded stack; and the program survives.
func TestStackOfAllCalls(t *testing.T) {
	t.Parallel()
	for _, compiler := range []string{"clang++-19", "g++"} {
		t.Run(compiler, func(t *testing.T) {
			t.Parallel()
			p, dir := callsProgram(t, compiler)
			trace := traceStacks(t, p.Process.Pid, filepath.Join(dir, "main"), "probed", Options{})
			p.Tell(t, "go")
			qt.Assert(t, qt.IsNil(p.Wait()))
			equal := assertShadow(t, trace.stop(), readShadow(t, p.Shadow), cut)
			t.Log("equal:", equal)
			ends, _ := trace.StackEnds()
			t.Log(ends)
			qt.Check(t, qt.Equals(ends["more than 128 frames"], uint64(len(flavours))))
			qt.Check(t, qt.Equals(ends["code without unwind rows"], 2)) // those with the huge frame
		})
	}
}

// A probe in code without unwind rows hits before rbp points to the function's own frame.
// Its caller must still be in the stack.
func TestStackFromCodeWithoutRows(t *testing.T) {
	t.Parallel()
	p, dir := callsProgram(t, "clang++-19")
	trace := traceStacks(t, p.Process.Pid, filepath.Join(dir, "without-rows.so"), "leaf", Options{})
	p.Tell(t, "go")
	qt.Assert(t, qt.IsNil(p.Wait()))
	var want []shadowCall
	for _, c := range readShadow(t, p.Shadow) {
		if len(c.names) > 0 && c.names[0] == "leaf@without-rows.so" {
			want = append(want, c)
		}
	}
	t.Log("equal:", assertShadow(t, trace.stop(), want, func(c *shadowCall) ([]string, bool) {
		if c.what == "too deep" { // leaf is the innermost of 128
			return c.names[:128], false
		}
		return cut(c)
	}))
}

// Cached stacks never leak into others: 100,000 stacks with moving frames, alternating call
// sites and stale return addresses equal the program's record, down to the call site.
func TestReusedStacks(t *testing.T) {
	t.Parallel()
	for _, compiler := range []string{"clang++-19", "g++"} {
		t.Run(compiler, func(t *testing.T) {
			t.Parallel()
			exe := filepath.Join(t.TempDir(), "reuse")
			compile(t, compiler, exe, "-rdynamic", "-fomit-frame-pointer", "reuse.cc", "shadow.cc")
			p := tracetest.Start(t, exe, "50000")
			trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
			p.Tell(t, "go")
			qt.Assert(t, qt.IsNil(p.Wait()))
			calls, want := trace.stop(), readShadow(t, p.Shadow)
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

// siteAddresses are the addresses from which two_sites calls, with the recorded site.
type siteAddresses map[uint64]string

// learn checks that an address always has the same recorded site.
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
			return // assertShadow reports it
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
