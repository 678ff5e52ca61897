package tracer

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/event"
)

// interpreter is a Python to test with.
type interpreter struct {
	exe, version, headers string
	minor                 int
}

// interpreters returns the Pythons of this machine that have headers: pyenv's, uv's and
// those on PATH. It skips the test if there is none.
func interpreters(t *testing.T) []interpreter {
	t.Helper()
	found := findInterpreters()
	if len(found) == 0 {
		t.Skip("no CPython 3.10 to 3.13 with its headers: neither pyenv, uv nor PATH has one")
	}
	return found
}

var findInterpreters = sync.OnceValue(func() (found []interpreter) {
	var candidates []string
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{
		filepath.Join(os.Getenv("PYENV_ROOT"), "versions/3.*/bin/python3"),
		filepath.Join(home, ".pyenv/versions/3.*/bin/python3"),
		filepath.Join(home, ".local/share/uv/python/cpython-3.*/bin/python3"),
	} {
		m, _ := filepath.Glob(pattern) // fails only on a bad pattern
		candidates = append(candidates, m...)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range []string{"python3", "python3.10", "python3.11", "python3.12", "python3.13"} {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, c := range candidates {
		// pyenv's shims are scripts; ask for the real path
		out, err := exec.Command(c, "-c", `import os, platform, sys, sysconfig
headers = sysconfig.get_paths()["include"]
if platform.python_implementation() == "CPython" and os.path.exists(headers + "/Python.h"):
    print(os.path.realpath(sys.executable), platform.python_version(), headers, sys.version_info[1], sep="\n")`).Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(lines) != 4 {
			continue
		}
		p := interpreter{exe: lines[0], version: lines[1], headers: lines[2]}
		if _, err := fmt.Sscan(lines[3], &p.minor); err != nil || p.minor < 10 || p.minor > 13 || slices.Contains(found, p) {
			continue
		}
		found = append(found, p)
	}
	return found
})

// compileC compiles a C file without frame pointers. It skips the test if there is no
// compiler.
func compileC(t *testing.T, source, out string, flags ...string) {
	t.Helper()
	for _, cc := range []string{"gcc", "clang-19", "clang", "cc"} {
		if path, err := exec.LookPath(cc); err == nil {
			args := append([]string{"-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "-o", out, source}, flags...)
			text, err := exec.Command(path, args...).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", text))
			return
		}
	}
	t.Skip("no C compiler: neither gcc nor clang is installed")
}

// pythonProgram is a running program that uses ttprobe.
type pythonProgram struct {
	*exec.Cmd
	interpreter
	dir string // contains ttprobe.so
	// module is the file with the interpreter: its library, or the program.
	module string
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr strings.Builder
}

// startPython starts a program of testdata/stack_python with ttprobe's folder and args, and
// waits until it is ready.
func startPython(t *testing.T, p interpreter, env []string, name string, args ...string) *pythonProgram {
	t.Helper()
	tracetest.NeedsRoot(t)
	run := &pythonProgram{interpreter: p, dir: t.TempDir()}
	compileC(t, "testdata/stack_python/ttprobe.c", run.probe(), "-Wall", "-Werror", "-shared", "-fPIC", "-I"+p.headers)
	run.Cmd = exec.Command(p.exe, append([]string{"-X", "utf8", filepath.Join("testdata/stack_python", name), run.dir}, args...)...)
	run.Env = append(os.Environ(), env...)
	run.start(t)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", run.Process.Pid))
	qt.Assert(t, qt.IsNil(err))
	run.module = p.exe
	if m := regexp.MustCompile(`/.*/libpython3[^/\n]*`).FindString(string(maps)); m != "" {
		run.module = m
	}
	return run
}

// start starts the program and waits until it is ready.
func (run *pythonProgram) start(t *testing.T) {
	t.Helper()
	run.Stderr = &run.stderr
	var err error
	run.stdin, err = run.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := run.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	run.stdout = bufio.NewReader(out)
	qt.Assert(t, qt.IsNil(run.Start()))
	hang := time.AfterFunc(2*time.Minute, func() { run.Process.Kill() })
	t.Cleanup(func() {
		hang.Stop()
		run.Process.Kill()
		run.Wait()
	})
	line, err := run.stdout.ReadString('\n')
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", &run.stderr))
	qt.Assert(t, qt.Equals(line, "ready\n"))
}

// probe is the extension.
func (p *pythonProgram) probe() string { return filepath.Join(p.dir, "ttprobe.so") }

// finish lets the program continue and waits for its end.
func (p *pythonProgram) finish(t *testing.T) {
	t.Helper()
	p.begin(t)
	p.ends(t)
}

func (p *pythonProgram) begin(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(p.stdin, "\n")
	qt.Assert(t, qt.IsNil(err))
}

func (p *pythonProgram) ends(t *testing.T) {
	t.Helper()
	_, err := io.Copy(io.Discard, p.stdout)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(p.Wait()), qt.Commentf("%s", &p.stderr))
	qt.Check(t, qt.Equals(p.stderr.String(), ""))
}

// said is a program's own record of a call.
type said struct {
	Kind   string
	TID    int
	Depths []int
	Frames []saidFrame
	// N is the number of frames if Frames does not have all of them.
	N int
	// Level is the number of undamaged frames.
	Level int
	// Places is the number of addresses at which code objects died.
	Places int
}

// saidFrame has name, qualified name, file and line.
type saidFrame struct {
	name, qualName, file string
	line                 int
}

func (f *saidFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.qualName, &f.file, &f.line})
}

// readSaid reads a program's records: the calls of each thread in order, and the last
// record.
func readSaid(t *testing.T, path string) (threads map[int][]said, end said) {
	t.Helper()
	f, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	threads = make(map[int][]said)
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var s said
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return threads, end
		}
		qt.Assert(t, qt.IsNil(err))
		if s.Kind == "end" {
			end = s
			continue
		}
		threads[s.TID] = append(threads[s.TID], s)
	}
}

// The limits of bpf/src/records.h, in bytes of the str, and the flag for a truncated text.
const (
	maxName = 256
	maxFile = 768
)

// shown returns a text as ttmem shows it. A character takes 1, 2 or 4 bytes, as the largest
// one needs.
func shown(s string, limit int) string {
	size := 1
	for _, c := range s {
		// JSON cannot express a lone surrogate; it is U+FFFD here
		switch {
		case c > 0xffff:
			size = 4
		case c > 0xff:
			size = max(size, 2)
		}
	}
	runes := []rune(s)
	return string(runes[:min(len(runes), limit/size)])
}

// pythonFrames returns the Python frames of a stack in the form of the records.
func pythonFrames(frames []event.Frame) (list []saidFrame) {
	for _, f := range frames {
		if f.Kind == event.Python {
			list = append(list, saidFrame{f.Symbol, f.Name, f.File, f.Line})
		}
	}
	return list
}

// sameFrame: if a line table was not copied completely, the line may be missing, but not
// wrong.
func sameFrame(got, want saidFrame) bool {
	if want.file == "<huge>" && got.line == 0 {
		want.line = 0
	}
	return got == want
}

// expected returns the Python frames that ttmem should show.
func (s said) expected() (list []saidFrame) {
	for _, f := range s.Frames {
		if f.qualName == "" { // 3.10 has none
			f.qualName = f.name
		}
		list = append(list, saidFrame{shown(f.name, maxName), shown(f.qualName, maxName), shown(f.file, maxFile), f.line})
	}
	return list
}

// tally counts comparisons.
type tally struct {
	stacks, equal, frames int
	kinds                 map[string]bool
	failures              int
}

// compare compares the stacks of a trace with the program's records, thread by thread.
func compare(t *testing.T, calls []stackOf, threads map[int][]said, check func(said, []event.Frame) error) (n tally) {
	t.Helper()
	n.kinds = make(map[string]bool)
	seen := make(map[int]int)
	for _, c := range calls {
		thread := threads[c.tid]
		i := seen[c.tid]
		seen[c.tid]++
		if i >= len(thread) {
			n.fail(t, "thread %d: call %d, of %d recorded", c.tid, i, len(thread))
			continue
		}
		want := thread[i]
		n.stacks++
		n.kinds[want.Kind] = true
		n.frames += len(want.Frames)
		frames := c.stack.Frames()
		if got, want := pythonFrames(frames), want.expected(); !slices.EqualFunc(got, want, sameFrame) {
			n.fail(t, "%s, call %d of thread %d: %s", thread[i].Kind, i, c.tid, difference(got, want))
			continue
		}
		if err := check(want, frames); err != nil {
			n.fail(t, "%s, call %d of thread %d: %v\n%s", want.Kind, i, c.tid, err, texts(frames))
			continue
		}
		n.equal++
	}
	for tid, thread := range threads {
		if seen[tid] != len(thread) {
			n.fail(t, "thread %d: %d of %d calls were seen (%s)", tid, seen[tid], len(thread), thread[0].Kind)
		}
	}
	if n.failures > maxFailures {
		t.Errorf("and %d failures more", n.failures-maxFailures)
	}
	return n
}

const maxFailures = 20

func (n *tally) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	if n.failures++; n.failures <= maxFailures {
		t.Errorf(format, args...)
	}
}

// difference describes the first difference between two stacks.
func difference(got, want []saidFrame) string {
	for i := range min(len(got), len(want)) {
		if !sameFrame(got[i], want[i]) {
			return fmt.Sprintf("frame %d of %d is\n%+v, not\n%+v", i, len(want), got[i], want[i])
		}
	}
	if len(got) < len(want) {
		return fmt.Sprintf("%d frames, not %d: ends before %+v", len(got), len(want), want[len(got)])
	}
	return fmt.Sprintf("%d frames, not %d: goes on with %+v", len(got), len(want), got[len(want)])
}

func texts(frames []event.Frame) string {
	var b strings.Builder
	for i := range frames {
		b.WriteString("  " + text(&frames[i]) + "\n")
	}
	return b.String()
}

// interleaved checks that each function of the extension that called Python stands at the
// right depth among Python's frames.
func interleaved(s said, frames []event.Frame) error {
	var depths []int
	outside := max(len(s.Frames), s.N)
	for _, f := range frames {
		switch {
		case f.Kind == event.Python:
			outside--
		case f.Symbol == "calling", f.Symbol == "descending":
			if n := len(depths); n > 0 && f.Symbol == "descending" && depths[n-1] == outside {
				continue // one inside the other
			}
			depths = append(depths, outside)
		}
	}
	slices.Reverse(depths)
	if !slices.Equal(depths, s.Depths) {
		return fmt.Errorf("C calls Python below %v frames, not %v", depths, s.Depths)
	}
	return nil
}

// folded checks a stack without the interpreter's own frames.
func folded(module string, s said, frames []event.Frame) error {
	if err := interleaved(s, frames); err != nil {
		return err
	}
	for _, f := range frames {
		if f.Kind == event.Native && f.Module == filepath.Base(module) {
			return fmt.Errorf("%s is a frame of the interpreter's", text(&f))
		}
	}
	if len(frames) == 0 || frames[0].Symbol != "probed" {
		return errors.New("probed is not the innermost frame")
	}
	return nil
}

// maxFrames is MAX_FRAMES of bpf/src/records.h.
const maxFrames = 128

const evalLoop = "_PyEval_EvalFrameDefault"

// inLoops checks that Python frames stand next to the evaluation loop that runs them, and
// that every loop runs a frame.
func inLoops(p interpreter, s said, frames []event.Frame) error {
	if err := interleaved(s, frames); err != nil {
		return err
	}
	native := 0
	for _, f := range frames {
		if f.Kind == event.Native && !f.Inlined {
			native++
		}
	}
	if native >= maxFrames {
		return nil // the outer Python frames have no loop in the stack
	}
	for i, f := range frames {
		loop := strings.HasPrefix(f.Symbol, evalLoop) && f.Kind == event.Native
		runs := i+1 < len(frames) && frames[i+1].Kind == event.Python
		switch {
		case loop && !runs:
			return fmt.Errorf("frame %d: a loop that runs nothing", i)
		case f.Kind == event.Native && !loop && runs:
			return fmt.Errorf("frame %d: %s is no loop, and runs %s", i, text(&f), text(&frames[i+1]))
		case p.minor == 10 && f.Kind == event.Python && runs:
			return fmt.Errorf("frame %d: a loop of 3.10 runs one frame, not two", i)
		}
	}
	return nil
}

// onEach runs a test on interpreters of the oldest and the newest version, at the same time. With -long it is
// each interpreter, as in TestPythonPartEqualsTraceback.
func onEach(t *testing.T, test func(*testing.T, interpreter)) {
	t.Helper()
	on(t, oldestAndNewest(t), test)
}

func oldestAndNewest(t *testing.T) []interpreter {
	t.Helper()
	list := slices.Clone(interpreters(t))
	if !*tracetest.Long && len(list) > 2 {
		byVersion := func(a, b interpreter) int { return cmp.Compare(a.minor, b.minor) }
		list = []interpreter{slices.MinFunc(list, byVersion), slices.MaxFunc(list, byVersion)}
	}
	return list
}

// freeThreaded returns a free-threaded Python. To build it takes minutes: only -long does that.
func freeThreaded(t *testing.T) []interpreter {
	t.Helper()
	if !*tracetest.Long && !rig.HasFreeThreadedPython() {
		return nil
	}
	p, err := rig.FreeThreadedPython(t.Context())
	qt.Assert(t, qt.IsNil(err))
	return []interpreter{{p.Exe, p.Name, filepath.Join(filepath.Dir(p.Exe), "..", "include", "python3.13t"), 13}}
}

func on(t *testing.T, list []interpreter, test func(*testing.T, interpreter)) {
	t.Helper()
	for _, p := range list {
		t.Run(p.version, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// A tracedPython is a program whose calls of probed are traced, and which writes to a file what it knows of them.
type tracedPython struct {
	*pythonProgram
	trace *stackTrace
	said  string
}

// startTraced starts a program as startPython does, with the file before args, and traces it.
func startTraced(t *testing.T, p interpreter, env []string, o Options, name string, args ...string) *tracedPython {
	t.Helper()
	said := filepath.Join(t.TempDir(), "said")
	run := startPython(t, p, env, name, append([]string{said}, args...)...)
	return &tracedPython{run, traceStacks(t, run.Process.Pid, run.probe(), "probed", o), said}
}

// stop ends tracing, and returns the calls as they were traced and as the program has told them, by thread.
func (p *tracedPython) stop(t *testing.T) (calls []stackOf, threads map[int][]said, end said) {
	t.Helper()
	calls = p.trace.stop()
	threads, end = readSaid(t, p.said)
	return calls, threads, end
}

// compareFolded compares stacks without the interpreter's own calls.
func (p *tracedPython) compareFolded(t *testing.T, calls []stackOf, threads map[int][]said) tally {
	t.Helper()
	return compare(t, calls, threads, func(s said, frames []event.Frame) error { return folded(p.module, s, frames) })
}

// At every call of a program with all kinds of calls, the Python part equals
// traceback.extract_stack.
func TestPythonPartEqualsTraceback(t *testing.T) {
	t.Parallel()
	on(t, append(slices.Clone(interpreters(t)), freeThreaded(t)...), func(t *testing.T, p interpreter) {
		run := startTraced(t, p, nil, Options{}, "program.py", strconv.Itoa(tracetest.Many(1000, 20000)))
		run.finish(t)
		calls, threads, end := run.stop(t)
		n := run.compareFolded(t, calls, threads)
		t.Logf("%d of %d stacks equal, %d frames, %d kinds, %d threads; functions that died lay at %d addresses",
			n.equal, n.stacks, n.frames, len(n.kinds), len(threads), end.Places)
		qt.Check(t, qt.IsTrue(end.Places < 10000))
		deep, none := uint64(0), uint64(0)
		for _, thread := range threads {
			for _, s := range thread {
				if s.N > 0 {
					deep++
				}
				if len(s.Frames) == 0 {
					none++
				}
			}
		}
		native, python := run.trace.StackEnds()
		t.Log(native, python)
		qt.Check(t, qt.DeepEquals(python, map[string]uint64{
			"at the outermost Python frame": uint64(n.stacks) - deep - none,
			"more than 128 Python frames":   deep,
			"no Python":                     none,
		}))
		// where all Python frames are known, they are not missed
		qt.Check(t, qt.IsTrue(native["more than 128 frames"] <= deep))
	})
}

// In a free-threaded 3.14 each thread has copies of the code.
func TestCopiesOfCode(t *testing.T) {
	t.Parallel()
	tracetest.NeedsRoot(t)
	headers, err := rig.PythonHeaders(t.Context())
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	exe, record := filepath.Join(dir, "standin"), filepath.Join(dir, "said")
	flags := []string{"-Wall", "-Werror", "-rdynamic"}
	for _, folder := range headers {
		flags = append(flags, "-I"+folder)
	}
	compileC(t, "testdata/stack_python/standin.c", exe, flags...)
	run := &pythonProgram{Cmd: exec.Command(exe, record)}
	run.start(t)
	traced := &tracedPython{run, traceStacks(t, run.Process.Pid, exe, "probed", Options{}), record}
	traced.finish(t)
	calls, threads, _ := traced.stop(t)
	n := compare(t, calls, threads, func(said, []event.Frame) error { return nil })
	qt.Check(t, qt.Equals(n.equal, 200))
	qt.Check(t, qt.HasLen(threads, 2))
}

// The Python part of a stack that repeats is compared.
func TestRepeatedPythonIsCompared(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p interpreter) {
		run := startPython(t, p, nil, "again.py")
		trace := traceStacks(t, run.Process.Pid, run.probe(), "probed", Options{})
		run.begin(t)
		line, err := run.stdout.ReadString('\n')
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(line, "done\n"))
		trace.assertCompared(t, "memory", "python")
	})
}

// Code that was dropped, to make room for other code, is sent again.
func TestPythonCodeIsSentAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p interpreter) {
		run := startTraced(t, p, nil, Options{}, "program.py", "3000")
		run.begin(t)
		tracetest.Eventually(time.Minute, func() bool { return len(run.trace.seen()) > 300 })
		qt.Assert(t, qt.IsNil(run.Process.Signal(unix.SIGSTOP)))
		run.trace.settle()
		dropped := make(chan int)
		run.trace.inbox.add(result{report: func(d *decoder) bool {
			for _, c := range run.trace.seen() {
				c.stack.Frames() // some of their code has ended
			}
			bytes := 0
			for range 4 {
				bytes += d.forgetCode(d.processes[run.Process.Pid])
			}
			dropped <- bytes
			return true
		}})
		qt.Assert(t, qt.IsTrue(<-dropped > 0))
		qt.Assert(t, qt.IsNil(run.Process.Signal(unix.SIGCONT)))
		run.ends(t)
		calls, threads, _ := run.stop(t)
		n := run.compareFolded(t, calls, threads)
		t.Logf("%d of %d stacks equal", n.equal, n.stacks)
	})
}

// With all frames shown, Python frames stand at the call of the evaluation loop that runs
// them.
func TestPythonFramesAtTheirLoops(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p interpreter) {
		run := startTraced(t, p, nil, Options{AllFrames: true}, "program.py", "100")
		run.finish(t)
		calls, threads, _ := run.stop(t)
		chains := 0
		n := compare(t, calls, threads, func(s said, frames []event.Frame) error {
			if s.Kind == "from_c" && len(s.Depths) > 1 {
				chains++
			}
			return inLoops(p, s, frames)
		})
		t.Logf("%d of %d stacks equal, %d frames, %d chains of callbacks", n.equal, n.stacks, n.frames, chains)
		qt.Check(t, qt.IsTrue(chains > 5))
	})
}

// The interpreter's pthread key is not among the first, which are stored elsewhere.
func TestPythonBehindOtherKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "keys.c"), filepath.Join(dir, "keys.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(`
#include <pthread.h>
__attribute__((constructor)) static void make(void) {
	pthread_key_t key;
	for (int i = 0; i < 100; i++) { pthread_key_create(&key, 0); pthread_setspecific(key, (void *)0xdead0000); }
}`), 0o644)))
	compileC(t, source, library, "-shared", "-fPIC")
	onEach(t, func(t *testing.T, p interpreter) {
		run := startTraced(t, p, []string{"LD_PRELOAD=" + library}, Options{}, "program.py", "100")
		run.finish(t)
		calls, threads, _ := run.stop(t)
		n := run.compareFolded(t, calls, threads)
		t.Logf("%d of %d stacks equal", n.equal, n.stacks)
	})
}

// With damaged interpreter memory, stacks have no invented frame. Frames before the damage
// are right; then the Python part ends, or goes on with functions of the program.
func TestDamagedPython(t *testing.T) {
	t.Parallel()
	on(t, append(oldestAndNewest(t), freeThreaded(t)...), func(t *testing.T, p interpreter) {
		run := startTraced(t, p, nil, Options{}, "damaged.py", "1000", offsetsOf(t, p))
		run.finish(t)
		calls, threads, _ := run.stop(t)
		qt.Assert(t, qt.HasLen(threads, 1))
		var list []said
		for _, thread := range threads {
			list = thread
		}
		qt.Assert(t, qt.HasLen(calls, len(list)))
		var n tally
		shown := 0
		for i, s := range list {
			got := pythonFrames(calls[i].stack.Frames())
			shown += len(got)
			n.stacks++
			if err := notMadeUp(got, s); err != nil {
				n.fail(t, "%s: %v", s.Kind, err)
				continue
			}
			n.equal++
		}
		native, python := run.trace.StackEnds()
		t.Logf("%d of %d stacks have no frame that is made up, %d frames of Python: %v, %v", n.equal, n.stacks, shown, native, python)
		qt.Check(t, qt.DeepEquals(native, map[string]uint64{"at the thread's start": uint64(len(calls))}))
		ends := uint64(0)
		for _, n := range python {
			ends += n
		}
		qt.Check(t, qt.Equals(ends, uint64(len(calls))))
		qt.Check(t, qt.IsTrue(python["Python frame not readable"] > 0))
		qt.Check(t, qt.IsTrue(python["Python frame makes no sense"] > 0))
	})
}

// offsetsOf returns the offsets in an interpreter and in its C library's threads, as JSON.
func offsetsOf(t *testing.T, p interpreter) string {
	t.Helper()
	var o struct {
		python.Offsets
		Specific uint32
	}
	out, err := exec.Command(p.exe, "-c", `print(*{l.split()[-1] for l in open("/proc/self/maps") if "/" in l}, sep="\n")`).Output()
	qt.Assert(t, qt.IsNil(err))
	for path := range strings.Lines(string(out)) {
		elf, err := symbolize.Open(strings.TrimSpace(path))
		if err != nil {
			continue
		}
		if r, err := python.Find(elf); err == nil {
			o.Offsets = r.Offsets
		}
		if strings.Contains(path, "/libc.so") {
			threads, err := python.Threads(elf)
			qt.Assert(t, qt.IsNil(err))
			o.Specific = threads.Specific
		}
		elf.Close()
	}
	qt.Assert(t, qt.IsTrue(o.ThreadFrame > 0 && o.Specific > 0), qt.Commentf("%s: no file of it is an interpreter, or the C library", p.exe))
	text, err := json.Marshal(o)
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

// realFrame reports whether a frame is one of the program's. Texts may be missing or
// truncated, or be the decoy that the damage puts in.
func realFrame(f saidFrame, want []saidFrame) bool {
	part := func(got, want string) bool { return strings.HasPrefix(want, got) || got == "a decoy" }
	if f.name == "decoy" && filepath.Base(f.file) == "damaged.py" {
		return true
	}
	return slices.ContainsFunc(want, func(w saidFrame) bool {
		return part(f.name, w.name) && part(f.file, w.file) && (part(f.qualName, w.qualName) || f.qualName == f.name)
	})
}

// notMadeUp checks the Python frames of a damaged stack.
func notMadeUp(got []saidFrame, s said) error {
	want := s.expected()
	seen := make(map[saidFrame]bool)
	for i, f := range got {
		if i < s.Level {
			if i >= len(want) || f != want[i] {
				return fmt.Errorf("frame %d, before the damage, is %+v: %+v", i, f, want)
			}
			continue
		}
		f.line = 0
		if seen[f] {
			return fmt.Errorf("frame %d is there again: %+v", i, f)
		}
		seen[f] = slices.ContainsFunc(want, func(w saidFrame) bool {
			w.line = 0
			return w == f
		})
		if !realFrame(f, want) {
			return fmt.Errorf("frame %d is made up: %+v", i, f)
		}
	}
	if s.Kind == "" && len(got) != len(want) {
		return fmt.Errorf("%d frames, not %d, when all is well again", len(got), len(want))
	}
	return nil
}
