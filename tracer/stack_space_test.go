package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/host"
)

// refresh makes the tracer read a process's code although it maps no tt-metal library.
func tell(tr *Tracer, pid int) {
	tr.spaces.Changed(pid)
	tr.spaces.Settle()
}

// kernelSpaceOf returns the kernel side's record of a process's code.
func kernelSpaceOf(t *testing.T, tr *Tracer, pid int) (k bpf.KernelSpace) {
	t.Helper()
	var process bpf.KernelProcess
	qt.Assert(t, qt.IsNil(tr.objs.Processes.Lookup(uint32(pid), &process)))
	var id ebpf.MapID
	qt.Assert(t, qt.IsNil(tr.objs.Spaces.Lookup(process.Space, &id)))
	m, err := ebpf.NewMapFromID(id)
	qt.Assert(t, qt.IsNil(err))
	defer m.Close()
	qt.Assert(t, qt.IsNil(m.Lookup(uint32(0), &k)))
	return k
}

// tablesOf returns the tables with unwind rows of the files that a process maps, by path.
func tablesOf(t *testing.T, tr *Tracer, pid int) map[string]uint32 {
	t.Helper()
	code, err := new(host.Proc).CodeMappings(pid)
	qt.Assert(t, qt.IsNil(err))
	tables := make(map[string]uint32)
	k := kernelSpaceOf(t, tr, pid)
	for _, m := range k.Mappings[:k.Count] {
		i := slices.IndexFunc(code, func(c host.Mapping) bool { return c.Start == m.Start })
		qt.Assert(t, qt.IsTrue(i >= 0))
		tables[code[i].Path] = m.Index
	}
	return tables
}

// Files of one build share one table, whether discovered together or one after the other,
// and stacks through each are right.
func TestCopiesShareATable(t *testing.T) {
	p, exe, libs := loadProgram(t)
	var copies []string
	text, err := os.ReadFile(libs[0])
	qt.Assert(t, qt.IsNil(err))
	for i := range 3 {
		copies = append(copies, filepath.Join(t.TempDir(), fmt.Sprintf("copy%d.so", i)))
		qt.Assert(t, qt.IsNil(os.WriteFile(copies[i], text, 0o755)))
	}
	p.Do(t, "open 0 %s", copies[0])
	p.Do(t, "open 0 %s", copies[1])
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	p.Do(t, "call 50 known")
	p.Do(t, "open 0 %s", copies[2])
	callUntilKnown(t, p, trace)
	p.Do(t, "call 50 known")
	tables := tablesOf(t, trace.Tracer, p.Process.Pid)
	qt.Check(t, qt.Not(qt.Equals(tables[copies[0]], bpf.NoTable)))
	for _, path := range copies {
		qt.Check(t, qt.Equals(tables[path], tables[copies[0]]))
	}
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.Shadow)
	qt.Assert(t, qt.HasLen(calls, len(want)))
	for i, w := range want {
		// all three are builds of first.so
		got := named(calls[i].stack.Frames())
		for j, name := range got {
			if strings.Contains(name, "@copy") {
				function, _, _ := strings.Cut(name, "@")
				got[j] = function + "@first.so"
			}
		}
		if w.what == "known" {
			qt.Assert(t, qt.DeepEquals(got[1:], w.names))
		}
	}
}

// Of a process that maps code in too many places, the first ones are known, and there is
// one warning.
func TestManyMappings(t *testing.T) {
	p, exe, _ := loadProgram(t)
	var mu sync.Mutex
	var warnings []string
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{Warn: func(_ int, text string) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, text)
	}})
	code, err := new(host.Proc).CodeMappings(p.Process.Pid)
	qt.Assert(t, qt.IsNil(err))
	places := len(code)
	room := len(bpf.KernelSpace{}.Mappings)
	p.Do(t, "map %d", room-places) // as many as there is room for
	tell(trace.Tracer, p.Process.Pid)
	k := kernelSpaceOf(t, trace.Tracer, p.Process.Pid)
	qt.Assert(t, qt.Equals(int(k.Count), room))
	callUntilKnown(t, p, trace)
	qt.Check(t, qt.HasLen(warnings, 0))

	p.Do(t, "map 100")
	tell(trace.Tracer, p.Process.Pid)
	tell(trace.Tracer, p.Process.Pid)
	k = kernelSpaceOf(t, trace.Tracer, p.Process.Pid)
	qt.Check(t, qt.Equals(int(k.Count), room))
	p.Do(t, "call 10 crowded")
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.Shadow)
	complete, early := assertNothingMadeUp(t, calls, want)
	t.Logf("%d stacks complete, %d ended early; %v", complete, early, warnings)
	mu.Lock()
	defer mu.Unlock()
	qt.Assert(t, qt.HasLen(warnings, 1))
	qt.Check(t, qt.Matches(warnings[0], fmt.Sprintf(`process \d+ maps code in 1\d\d\d places, of which %d can be unwound`, room)))
}
