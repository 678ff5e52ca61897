package tracer

// Stacks of the real ttnn compared with those that gdb sees at the same calls.

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// probedByGDB are functions that are called in many ways: allocations of device and host
// memory. gdb takes seconds to read the libraries of a process, so it stops at several functions of one.
var probedByGDB = []struct {
	program, library string
	symbols          []string
}{
	{"mix.py", "libtt_metal.so", []string{
		"_ZN2tt8tt_metal12GraphTracker14track_allocateEPKNS0_6BufferE",
		"_ZN2tt8tt_metal12GraphTracker16track_deallocateEPNS0_6BufferE",
		"_ZN2tt8tt_metal12GraphTracker17track_allocate_cbERKNS0_12CoreRangeSetEmmbPKNS0_7IDeviceE",
	}},
	{"demo.py", "libtt_metal.so", []string{
		"_ZN2tt8tt_metal12GraphTracker14track_allocateEPKNS0_6BufferE",
		"_ZN2tt8tt_metal12GraphTracker13track_programEPNS0_7ProgramEPKNS0_7IDeviceE",
	}},
	{"demo.py", "libstdc++.so.6", []string{"_Znwm"}}, // operator new
}

// gdbStack is a stack as gdb saw it: modules and addresses in them, innermost frame first.
type gdbStack struct {
	at     int // the number of the function
	tid    int
	frames []gdbFrame
	made   int // tail calls that gdb inferred; left out
}

type gdbFrame struct {
	module string
	// address is the return address; for the innermost frame and after a signal, the
	// address itself
	address uint64
	exact   bool
}

func (f gdbFrame) String() string { return fmt.Sprintf("%s+%#x", f.module, f.address) }

// attachGDB makes gdb write the stack at the first hits of addresses in a process. It
// returns when gdb is attached.
func attachGDB(t *testing.T, pid int, addresses []uint64, hits int) (cmd *exec.Cmd, file string) {
	t.Helper()
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("no gdb")
	}
	file = filepath.Join(t.TempDir(), "stacks")
	cmd = exec.Command("gdb", "-nx", "-batch", "-p", strconv.Itoa(pid), "-x", filepath.Join("testdata", "stack_native", "gdb.py"))
	cmd.Env = append(os.Environ(), "BREAK="+strings.Trim(fmt.Sprintf("%#x", addresses), "[]"), fmt.Sprintf("HITS=%d", hits), "STACKS="+file)
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = cmd.Stdout
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var said strings.Builder
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		said.WriteString(line)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("gdb: %s", said.String()))
		if line == "attached\n" {
			go io.Copy(io.Discard, r)
			return cmd, file
		}
	}
}

// readGDB reads the output of gdb.py.
func readGDB(t *testing.T, file string) (stacks []gdbStack) {
	t.Helper()
	text, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	var maps []host.Mapping
	biases := make(map[host.Mapping]uint64)
	fresh := true
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		rest, isStack := strings.CutPrefix(line, "stack ")
		if !isStack {
			if fresh {
				maps, fresh = nil, false
			}
			if m, ok := host.ParseCodeMapping(line); ok {
				maps = append(maps, m)
			}
			continue
		}
		fresh = true
		fields := strings.Fields(rest)
		at, err := strconv.Atoi(fields[0])
		qt.Assert(t, qt.IsNil(err))
		tid, err := strconv.Atoi(fields[1])
		qt.Assert(t, qt.IsNil(err))
		s := gdbStack{at: at, tid: tid}
		exact := true
		for _, field := range fields[2:] {
			pc, kind, _ := strings.Cut(field, ":")
			at, err := strconv.ParseUint(pc, 16, 64)
			qt.Assert(t, qt.IsNil(err))
			switch kind {
			case "tailcall": // it left no frame on the stack
				s.made++
				continue
			case "inlined":
				continue
			}
			f := gdbFrame{"?", at, exact}
			i, found := slices.BinarySearchFunc(maps, at, func(m host.Mapping, at uint64) int { return cmp.Compare(m.Start, at) })
			if !found {
				i--
			}
			if i >= 0 && at < maps[i].End {
				m := maps[i]
				if _, known := biases[m]; !known {
					biases[m] = biasOf(t, m)
				}
				f.module, f.address = filepath.Base(m.Path), at-biases[m]
			}
			s.frames = append(s.frames, f)
			exact = kind == "signal"
		}
		stacks = append(stacks, s)
	}
	return stacks
}

// biasOf is the difference between the addresses in a mapped file and in its program
// headers.
func biasOf(t *testing.T, m host.Mapping) uint64 {
	if m.Path == "" || m.Path[0] != '/' {
		return 0
	}
	f, err := elf.Open(m.Path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Off&^4095 == m.Offset {
			return m.Start - p.Vaddr&^4095
		}
	}
	t.Fatalf("%s: no segment is mapped from %#x", m.Path, m.Offset)
	return 0
}

// nativeFrames returns the native frames of a stack in gdb's form.
func nativeFrames(frames []event.Frame) (list []gdbFrame) {
	for _, f := range frames {
		if f.Kind == event.Native && !f.Inlined {
			list = append(list, gdbFrame{f.Module, f.Address + 1, false})
		}
	}
	return list
}

// afterFirst is the address of the second instruction of a function that begins with push
// or endbr64. ttmem's probe is on the first.
func afterFirst(t *testing.T, file, symbol string) uint64 {
	t.Helper()
	e, err := symbolize.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	s, ok := e.Lookup(symbol)
	qt.Assert(t, qt.IsTrue(ok))
	code, err := e.Text(s.Addr, 4)
	qt.Assert(t, qt.IsNil(err))
	switch {
	case code[0]&^7 == 0x50:
		return s.Addr + 1
	case code[0] == 0x41 && code[1]&^7 == 0x50:
		return s.Addr + 2
	case string(code) == "\xf3\x0f\x1e\xfa":
		return s.Addr + 4
	}
	t.Fatalf("%s begins with % x, which is no push", symbol, code)
	return 0
}

// At the same calls of the real ttnn, ttmem and gdb see the same frames by address, down to
// the thread's start.
func TestNativeStackEqualsGDB(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) || version != rig.DefaultVersion && !*tracetest.Long {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var all gdbComparison
			for _, c := range probedByGDB {
				t.Run(c.library+" of "+c.program, func(t *testing.T) {
					c := compareWithGDB(t, version, c.program, c.library, c.symbols)
					t.Logf("%d equal, %d of them different", c.equal, len(c.different))
					all.add(c)
				})
			}
			t.Logf("%s: %d stacks equal gdb's, %d of them different, of up to %d frames; %d differ. In %d gdb made up a tail call.",
				version, all.equal, len(all.different), all.deepest, all.wrong, all.madeUp)
			t.Logf("ends of %d stacks: %v", total(all.ends), all.ends)
			qt.Check(t, qt.Equals(all.wrong, 0))
			qt.Check(t, qt.IsTrue(len(all.different) >= 40))
			qt.Check(t, qt.IsTrue(float64(all.ends["at the thread's start"]) >= 0.999*float64(total(all.ends))))
		})
	}
}

// gdbComparison counts stacks by whether they equal gdb's.
type gdbComparison struct {
	equal, wrong int
	different    map[string]bool // equal ones
	madeUp       int             // equal without a tail call that gdb inferred
	deepest      int             // frames
	ends         map[string]uint64
}

func (c *gdbComparison) add(other gdbComparison) {
	if c.different == nil {
		c.different, c.ends = make(map[string]bool), make(map[string]uint64)
	}
	c.equal, c.wrong, c.madeUp = c.equal+other.equal, c.wrong+other.wrong, c.madeUp+other.madeUp
	c.deepest = max(c.deepest, other.deepest)
	maps.Copy(c.different, other.different)
	for end, n := range other.ends {
		c.ends[end] += n
	}
}

// compareWithGDB traces the calls of functions in a program while gdb stops at them.
func compareWithGDB(t *testing.T, version, program, library string, symbols []string) (c gdbComparison) {
	t.Helper()
	p, _ := tracetest.TTNN(t, version, program)
	maps, err := new(host.Proc).CodeMappings(p.Process.Pid)
	qt.Assert(t, qt.IsNil(err))
	i := slices.IndexFunc(maps, func(m host.Mapping) bool { return strings.HasPrefix(filepath.Base(m.Path), library) })
	qt.Assert(t, qt.IsTrue(i >= 0), qt.Commentf("%s is not mapped", library))
	file := maps[i].Path
	var traces []*stackTrace
	var addresses []uint64
	for _, symbol := range symbols {
		traces = append(traces, traceStacks(t, p.Process.Pid, file, symbol, Options{AllFrames: true}))
		addresses = append(addresses, biasOf(t, maps[i])+afterFirst(t, file, symbol))
	}
	gdb, output := attachGDB(t, p.Process.Pid, addresses, tracetest.Many(100, 400))
	attached := host.Now()
	p.Tell(t, "go")
	go io.Copy(io.Discard, p.Out)
	qt.Assert(t, qt.IsNil(gdb.Wait()))
	qt.Assert(t, qt.IsNil(p.Wait()))
	type inThread struct{ at, tid int }
	calls := make(map[inThread][]stackOf)
	c.different, c.ends = make(map[string]bool), make(map[string]uint64)
	for at, trace := range traces {
		for _, call := range trace.stop() {
			if call.timeNs > attached {
				calls[inThread{at, call.tid}] = append(calls[inThread{at, call.tid}], call)
			}
		}
		ends, _ := trace.StackEnds()
		for end, n := range ends {
			c.ends[end] += n
		}
	}
	stacks := make([]int, len(symbols))
	for n, want := range readGDB(t, output) {
		of := inThread{want.at, want.tid}
		rest := calls[of]
		qt.Assert(t, qt.IsTrue(len(rest) > 0), qt.Commentf("gdb's stack %d was not seen", n))
		calls[of] = rest[1:]
		stacks[want.at]++
		got := nativeFrames(rest[0].stack.Frames())
		same := len(got) == len(want.frames)
		for i := 1; i < len(got) && same; i++ { // the innermost frame differs by an instruction
			w := want.frames[i]
			if w.exact {
				w.address++
			}
			same = got[i].module == w.module && got[i].address == w.address
		}
		if !same {
			if c.wrong++; c.wrong <= 3 {
				t.Errorf("stack %d:\n got %v\nwant %v", n, got, want.frames)
			}
			continue
		}
		c.equal++
		if want.made > 0 {
			c.madeUp++
		}
		c.deepest = max(c.deepest, len(got))
		c.different[fmt.Sprint(got)] = true
	}
	for at, n := range stacks {
		qt.Check(t, qt.IsTrue(n > 0), qt.Commentf("%s was not called", symbols[at]))
	}
	return c
}

func total(counts map[string]uint64) (n uint64) {
	for _, k := range counts {
		n += k
	}
	return n
}

// TestTimeToAttach logs how long it takes to attach to a process that runs ttnn.
func TestTimeToAttach(t *testing.T) {
	p, _ := tracetest.TTNN(t, "0.81.1", "loop.py", "1000", "2")
	p.Tell(t, "go")
	for p.Line(t) != "ready" { // its device is open
	}
	pid := p.Process.Pid
	took := func(what string, do func()) time.Duration { t.Helper(); return tracetest.Took(t, what, do) }
	var tr *Tracer
	for range 2 {
		var err error
		if tr != nil {
			tr.Close()
		}
		took("New with stacks", func() { tr, err = New(Options{Processes: []int{pid}}) })
		qt.Assert(t, qt.IsNil(err))
	}
	tr.Close()
	took("New without stacks", func() { tr, _ = New(Options{Processes: []int{pid}, NoStacks: true}) })
	tr.Close()
}
