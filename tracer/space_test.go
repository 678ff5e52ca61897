package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"ttmem/bpf"
)

// needsRoot skips a test that traces where that is not allowed: make test runs as root.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
}

// knowing starts a trace that knows the code of some processes, and no events.
func knowing(t *testing.T, warn func(string), pids ...int) *Tracer {
	t.Helper()
	needsRoot(t)
	tr, err := New(Options{Processes: pids, Warn: warn})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(tr.Close)
	know(tr, pids...)
	return tr
}

func know(tr *Tracer, pids ...int) {
	for _, pid := range pids {
		_ = tr.objs.Processes.Update(uint32(pid), &bpf.KernelProcess{}, ebpf.UpdateNoExist)
		tr.spaces.changed(pid)
		tr.spaces.settle() // in this order
	}
}

// sleeper is a process that does nothing.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for { // until it is that program
		if maps, err := executableMaps(cmd.Process.Pid); err == nil && slices.ContainsFunc(maps, func(m procMap) bool {
			return strings.HasPrefix(filepath.Base(m.path), "libc.so")
		}) {
			return cmd.Process.Pid
		}
		time.Sleep(time.Millisecond)
	}
}

// kernelSpace is what the kernel side has in a slot.
func kernelSpace(t *testing.T, tr *Tracer, slot uint32) (k bpf.KernelSpace) {
	t.Helper()
	var id ebpf.MapID
	qt.Assert(t, qt.IsNil(tr.objs.Spaces.Lookup(slot, &id)))
	m, err := ebpf.NewMapFromID(id)
	qt.Assert(t, qt.IsNil(err))
	defer m.Close()
	qt.Assert(t, qt.IsNil(m.Lookup(uint32(0), &k)))
	return k
}

// TestSlotsAreTakenInTurn: a slot that is given up is the last to be taken again,
// because the kernel may use it for a moment; when all are taken, the process is
// refused, and known once one is free.
func TestSlotsAreTakenInTurn(t *testing.T) {
	pids := []int{sleeper(t), sleeper(t), sleeper(t), sleeper(t)}
	var warnings []string
	tr := knowing(t, func(text string) { warnings = append(warnings, text) }, pids[:3]...)
	s := tr.spaces
	s.slots = s.slots[:5] // 0 is none
	slot := func(pid int) uint32 {
		if p := s.byPID[pid]; p != nil {
			return p.slot
		}
		return 0
	}
	qt.Check(t, qt.DeepEquals([]uint32{slot(pids[0]), slot(pids[1]), slot(pids[2])}, []uint32{1, 2, 3}))
	s.forget(pids[1], now())
	var id ebpf.MapID
	qt.Check(t, qt.ErrorIs(tr.objs.Spaces.Lookup(uint32(2), &id), ebpf.ErrKeyNotExist))
	know(tr, pids[3])
	qt.Check(t, qt.Equals(slot(pids[3]), 4))
	know(tr, pids[1])
	qt.Check(t, qt.Equals(slot(pids[1]), 2))

	more := sleeper(t)
	know(tr, more)
	qt.Check(t, qt.Equals(slot(more), 0))
	qt.Assert(t, qt.HasLen(warnings, 1))
	qt.Check(t, qt.Equals(warnings[0], fmt.Sprintf("process %d: stacks are not taken: the stacks of 4 processes are taken already", more)))
	s.forget(pids[0], now())
	know(tr, more)
	qt.Check(t, qt.Equals(slot(more), 1))
	k := kernelSpace(t, tr, 1)
	qt.Check(t, qt.Equals(int(k.Count), len(s.byPID[more].newest.mappings)))
}

// TestStatesHaveTheirOwnNumbers: no two states of any processes have the same
// number, and one that has not changed keeps its own: with another all stacks
// would have to be told of again.
func TestStatesHaveTheirOwnNumbers(t *testing.T) {
	pids := []int{sleeper(t), sleeper(t)}
	tr := knowing(t, nil, pids...)
	seen := make(map[uint32]bool)
	for _, pid := range pids {
		p := tr.spaces.byPID[pid]
		k := kernelSpace(t, tr, p.slot)
		qt.Check(t, qt.Equals(k.Generation, p.newest.generation))
		qt.Check(t, qt.IsFalse(seen[k.Generation]))
		seen[k.Generation] = true
		qt.Check(t, qt.Equals(tr.spaces.view(pid, k.Generation), p.newest))
		know(tr, pid)
		qt.Check(t, qt.Equals(kernelSpace(t, tr, p.slot).Generation, k.Generation))
	}
	qt.Check(t, qt.IsNil(tr.spaces.view(pids[0], 1<<30)))
}

// openFiles is how many descriptors of this process are of a file.
func openFiles(path string) (n int) {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// TestForgottenFilesAreClosed: the files of a process that has ended are closed
// unless another maps them, and its tables are kept for the next that does.
func TestForgottenFilesAreClosed(t *testing.T) {
	own, _, libs := loadProgram(t)
	own.do(t, "open 0 %s", libs[0])
	other := sleeper(t)
	tr := knowing(t, nil, own.Process.Pid, other)
	s := tr.spaces
	table := s.byPID[own.Process.Pid].newest.file(libs[0]).table
	qt.Assert(t, qt.IsNotNil(table))
	qt.Check(t, qt.Equals(table.users, 1))
	libc := s.byPID[other].newest.mappings
	libcTable := libc[slices.IndexFunc(libc, func(m codeMapping) bool {
		return strings.HasPrefix(filepath.Base(m.file.path), "libc.so")
	})].file.table
	qt.Check(t, qt.Equals(libcTable.users, 2))
	qt.Check(t, qt.Equals(openFiles(libs[0]), 1))

	s.forget(own.Process.Pid, now())
	for range 100 {
		runtime.GC()
		if openFiles(libs[0]) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	qt.Check(t, qt.Equals(openFiles(libs[0]), 0))
	qt.Check(t, qt.Equals(table.users, 0))
	qt.Check(t, qt.IsFalse(table.gone))
	qt.Check(t, qt.Equals(libcTable.users, 1))
	for _, m := range s.byPID[other].newest.mappings {
		if m.file.elf != nil && m.file.path != "[vdso]" {
			qt.Check(t, qt.IsTrue(openFiles(m.file.path) >= 1), qt.Commentf("%s", m.file.path))
		}
	}

	know(tr, own.Process.Pid)
	qt.Check(t, qt.Equals(s.byPID[own.Process.Pid].newest.file(libs[0]).table, table))
	qt.Check(t, qt.Equals(table.users, 1))
}

// file is the file of a path that is mapped.
func (v *spaceView) file(path string) *codeFile {
	for _, m := range v.mappings {
		if m.file.path == path {
			return m.file
		}
	}
	return nil
}

// TestCopiesShareATable: files of one build have one table, met together or one
// after the other, and stacks through either are right.
func TestCopiesShareATable(t *testing.T) {
	p, exe, libs := loadProgram(t)
	var copies []string
	text, err := os.ReadFile(libs[0])
	qt.Assert(t, qt.IsNil(err))
	for i := range 3 {
		copies = append(copies, filepath.Join(t.TempDir(), fmt.Sprintf("copy%d.so", i)))
		qt.Assert(t, qt.IsNil(os.WriteFile(copies[i], text, 0o755)))
	}
	p.do(t, "open 0 %s", copies[0])
	p.do(t, "open 0 %s", copies[1])
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	p.do(t, "call 50 known")
	before := trace.spaces.tables.used
	p.do(t, "open 0 %s", copies[2])
	p.callUntilKnown(t, trace)
	p.do(t, "call 50 known")
	qt.Check(t, qt.Equals(trace.spaces.tables.used, before))
	view := trace.spaces.byPID[p.Process.Pid].newest
	table := view.file(copies[0]).table
	qt.Check(t, qt.IsNotNil(table))
	for _, path := range copies {
		qt.Check(t, qt.Equals(view.file(path).table, table))
	}
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.shadow)
	qt.Assert(t, qt.HasLen(calls, len(want)))
	for i, w := range want {
		// all three say that they are first.so
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

// TestManyMappings: of a process that maps code in more places than the kernel
// side has room for the first ones are known, and it is said once.
func TestManyMappings(t *testing.T) {
	p, exe, _ := loadProgram(t)
	var mu sync.Mutex
	var warnings []string
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{Warn: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, text)
	}})
	places := len(trace.spaces.byPID[p.Process.Pid].newest.mappings)
	room := len(bpf.KernelSpace{}.Mappings)
	p.do(t, "map %d", room-places) // as many as there is room for
	know(trace.Tracer, p.Process.Pid)
	slot := trace.spaces.byPID[p.Process.Pid].slot
	k := kernelSpace(t, trace.Tracer, slot)
	qt.Assert(t, qt.Equals(int(k.Count), room))
	p.callUntilKnown(t, trace)
	qt.Check(t, qt.HasLen(warnings, 0))

	p.do(t, "map 100")
	know(trace.Tracer, p.Process.Pid)
	know(trace.Tracer, p.Process.Pid)
	k = kernelSpace(t, trace.Tracer, slot)
	qt.Check(t, qt.Equals(int(k.Count), room))
	p.do(t, "call 10 crowded")
	p.in.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	calls, want := trace.stop(), readShadow(t, p.shadow)
	complete, early := assertNothingMadeUp(t, calls, want)
	t.Logf("%d stacks complete, %d ended early; %v", complete, early, warnings)
	mu.Lock()
	defer mu.Unlock()
	qt.Assert(t, qt.HasLen(warnings, 1))
	qt.Check(t, qt.Matches(warnings[0], fmt.Sprintf(`process \d+ maps code in 1\d\d\d places, of which %d can be unwound`, room)))
}

// TestVDSOIsKnown: the code that the kernel gives to each process has rows as well.
func TestVDSOIsKnown(t *testing.T) {
	pid := sleeper(t)
	tr := knowing(t, nil, pid)
	vdso := tr.spaces.byPID[pid].newest.file("[vdso]")
	qt.Assert(t, qt.IsNotNil(vdso))
	qt.Assert(t, qt.IsNotNil(vdso.elf))
	qt.Assert(t, qt.IsNotNil(vdso.table))
	_, ok := vdso.elf.Lookup("__vdso_clock_gettime")
	qt.Check(t, qt.IsTrue(ok))
}
