package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// known are address spaces that are published on demand.
type known struct {
	*Spaces
	objs *kernel.Objects
}

// knowing publishes the code of some processes, and reads no events.
func knowing(t *testing.T, warn func(string), pids ...int) *known {
	t.Helper()
	tracetest.NeedsRoot(t)
	if warn == nil {
		warn = func(string) {}
	}
	k, err := kernel.Detect()
	qt.Assert(t, qt.IsNil(err))
	objs, err := k.Load(kernel.LoadOptions{OnlyListed: true, Stacks: true})
	qt.Assert(t, qt.IsNil(err))
	readers := host.NewReaders()
	s := NewSpaces(readers, warn)
	qt.Assert(t, qt.IsNil(s.Start(objs)))
	t.Cleanup(func() { s.Close(); readers.Close(); objs.Close() })
	tr := &known{s, objs}
	know(tr, pids...)
	return tr
}

// A process that ends while its code is published keeps its views until the record of its end: its last stacks may come
// before that.
func TestViewsUntilTheEnd(t *testing.T) {
	program := tracetest.Start(t, "sh", "-c", "echo ready; read end")
	pid := program.Process.Pid
	tr := knowing(t, nil, pid)
	p := tr.byPID[pid]
	qt.Assert(t, qt.IsTrue(p != nil && p.newest != nil))
	generation := p.newest.generation
	program.Process.Kill()
	program.Wait()
	used, _, err := tr.rows.tables.of(p.newest.mappings, false)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.ErrorIs(tr.show(pid, p, p.newest.mappings, used), unix.ESRCH))
	qt.Check(t, qt.IsNotNil(tr.view(pid, generation)))
	tr.Forget(p.program)
	tr.Settle()
	qt.Check(t, qt.IsNil(tr.view(pid, generation)))
}

func know(tr *known, pids ...int) {
	for _, pid := range pids {
		_, _ = tr.objs.AddProcess(pid, 0)
		tr.Changed(pid)
		tr.Settle() // in this order
	}
}

// Settle waits for what is removed in the background as well.
func (k *known) Settle() {
	k.Spaces.Settle()
	k.removing.Wait()
}

// sleeper is a process that only sleeps.
func sleeper(t *testing.T, environ ...string) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), environ...)
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for { // until the exec has happened
		if maps, err := new(host.Proc).FileMappings(cmd.Process.Pid); err == nil && slices.ContainsFunc(maps, func(m host.Mapping) bool {
			return strings.HasPrefix(filepath.Base(m.Path), "libc.so")
		}) {
			return cmd.Process.Pid
		}
		time.Sleep(time.Millisecond)
	}
}

// kernelSpace reads the kernel side's entry in a slot.
func kernelSpace(t *testing.T, tr *known, slot uint32) (k bpf.KernelSpace) {
	t.Helper()
	var id ebpf.MapID
	qt.Assert(t, qt.IsNil(tr.objs.Spaces.Lookup(slot, &id)))
	m, err := ebpf.NewMapFromID(id)
	qt.Assert(t, qt.IsNil(err))
	defer m.Close()
	qt.Assert(t, qt.IsNil(m.Lookup(uint32(0), &k)))
	return k
}

// A user other than root has a quarter of the slots, and one warning if that is not enough.
func TestSlotsOfAUser(t *testing.T) {
	s := newSlots(4096)
	fill := func(user int) (n int) {
		for {
			if _, err := s.take(user); err != nil {
				qt.Check(t, qt.ErrorIs(err, errNoSlot))
				return n
			}
			n++
		}
	}
	qt.Check(t, qt.Equals(fill(1), 1023))
	qt.Check(t, qt.Equals(fill(2), 1023))
	qt.Check(t, qt.Equals(fill(0), 4095-2*1023))
	qt.Check(t, qt.IsTrue(s.refuses(1)))
	qt.Check(t, qt.IsFalse(s.refuses(1)))
	qt.Check(t, qt.IsTrue(s.refuses(2)))
}

// A released slot is reused last, because the kernel may still use it for a moment. When
// all are taken, a process is refused, and accepted once one is free.
func TestSlotsAreTakenInTurn(t *testing.T) {
	pids := []int{sleeper(t), sleeper(t), sleeper(t), sleeper(t)}
	var warnings []string
	tr := knowing(t, func(text string) { warnings = append(warnings, text) }, pids[:3]...)
	s := tr.Spaces
	s.slots.used = s.slots.used[:5] // 0 is none
	slot := func(pid int) uint32 {
		if p := s.byPID[pid]; p != nil {
			return p.slot
		}
		return 0
	}
	qt.Check(t, qt.DeepEquals([]uint32{slot(pids[0]), slot(pids[1]), slot(pids[2])}, []uint32{1, 2, 3}))
	s.Forget(s.byPID[pids[1]].program)
	tr.Settle()
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
	qt.Check(t, qt.Equals(warnings[0], fmt.Sprintf("process %d: no call stacks: as many processes are recorded already as there may be: 4 of user 0", more)))
	know(tr, more)
	qt.Check(t, qt.HasLen(warnings, 1))
	s.Forget(s.byPID[pids[0]].program)
	tr.Settle()
	know(tr, more)
	qt.Check(t, qt.Equals(slot(more), 1))
	k := kernelSpace(t, tr, 1)
	qt.Check(t, qt.Equals(int(k.Count), len(s.byPID[more].newest.mappings)))
}

// No two views of any processes have the same generation. An unchanged one keeps its own:
// with another, all stacks would have to be sent again.
func TestStatesHaveTheirOwnNumbers(t *testing.T) {
	pids := []int{sleeper(t), sleeper(t)}
	tr := knowing(t, nil, pids...)
	seen := make(map[uint32]bool)
	for _, pid := range pids {
		p := tr.Spaces.byPID[pid]
		k := kernelSpace(t, tr, p.slot)
		qt.Check(t, qt.Equals(k.Generation, p.newest.generation))
		qt.Check(t, qt.IsFalse(seen[k.Generation]))
		seen[k.Generation] = true
		qt.Check(t, qt.Equals(tr.Spaces.view(pid, k.Generation), p.newest))
		know(tr, pid)
		qt.Check(t, qt.Equals(kernelSpace(t, tr, p.slot).Generation, k.Generation))
	}
	qt.Check(t, qt.IsNil(tr.Spaces.view(pids[0], 1<<30)))
}

// openFiles counts the descriptors of this process for a file.
func openFiles(path string) (n int) {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// ownLibrary builds a library that no other process maps.
func ownLibrary(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "own.c"), filepath.Join(dir, "own.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte("int own(int n) { return n + 1; }"), 0o600)))
	tracetest.Compile(t, dir, "cc", library, append([]string{"-shared", "-fPIC", source}, args...)...)
	return library
}

// The files of a process that has ended are closed unless another maps them, and its tables
// are kept for reuse, also those of files without a build ID.
func TestForgottenFilesAreClosed(t *testing.T) {
	for _, option := range []string{"-Wl,--build-id", "-Wl,--build-id=none"} {
		t.Run(option, func(t *testing.T) { testForgottenFilesAreClosed(t, ownLibrary(t, option)) })
	}
}

func testForgottenFilesAreClosed(t *testing.T, library string) {
	own, other := sleeper(t, "LD_PRELOAD="+library), sleeper(t)
	tr := knowing(t, nil, own, other)
	s := tr.Spaces
	table := s.byPID[own].newest.file(library).table
	qt.Assert(t, qt.IsNotNil(table))
	qt.Check(t, qt.Equals(table.users, 1))
	libc := s.byPID[other].newest.mappings
	libcTable := libc[slices.IndexFunc(libc, func(m codeMapping) bool {
		return strings.HasPrefix(filepath.Base(m.file.path), "libc.so")
	})].file.table
	qt.Check(t, qt.Equals(libcTable.users, 2))
	qt.Check(t, qt.Equals(openFiles(library), 1))

	s.Forget(s.byPID[own].program)
	tr.Settle()
	for range 6000 {
		runtime.GC()
		if openFiles(library) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	qt.Check(t, qt.Equals(openFiles(library), 0))
	qt.Check(t, qt.Equals(table.users, 0))
	qt.Check(t, qt.IsFalse(table.gone))
	qt.Check(t, qt.Equals(libcTable.users, 1))
	for _, m := range s.byPID[other].newest.mappings {
		if m.file.elf != nil && m.file.path != "[vdso]" {
			qt.Check(t, qt.IsTrue(openFiles(m.file.path) >= 1), qt.Commentf("%s", m.file.path))
		}
	}

	used := chunksOf(s.rows.tables)
	know(tr, own)
	qt.Check(t, qt.Equals(s.byPID[own].newest.file(library).table, table))
	qt.Check(t, qt.Equals(table.users, 1))
	qt.Check(t, qt.Equals(chunksOf(s.rows.tables), used))
}

// The kernel has each mapping whose file turned out to have no rows, after it was published
// without it: frame pointers may work there.
func TestCodeWithoutRowsIsListed(t *testing.T) {
	library := ownLibrary(t, "-nostdlib", "-fno-asynchronous-unwind-tables")
	pid := sleeper(t, "LD_PRELOAD="+library)
	tr := knowing(t, nil, sleeper(t), pid) // so the other files are known when it is published
	p := tr.Spaces.byPID[pid]
	i := slices.IndexFunc(p.newest.mappings, func(m codeMapping) bool { return m.file.path == library })
	qt.Assert(t, qt.IsTrue(i >= 0))
	k := kernelSpace(t, tr, p.slot)
	start := p.newest.mappings[i].start
	n := slices.IndexFunc(k.Mappings[:k.Count], func(m bpf.KernelMapping) bool { return m.Start == start })
	qt.Assert(t, qt.IsTrue(n >= 0))
	qt.Check(t, qt.Equals(k.Mappings[n].Index, bpf.NoTable))
}

// A file whose rows did not fit is read again when its process maps more, and not each time
// that other files were read.
func TestRefusedRowsAreReadAgainAfterAChange(t *testing.T) {
	library := ownLibrary(t)
	var warnings []string
	tr := knowing(t, func(text string) { warnings = append(warnings, text) }, sleeper(t))
	s := tr.Spaces
	free := s.rows.tables.taken
	s.rows.tables.taken = slices.Repeat([]bool{true}, len(free))
	pid := sleeper(t, "LD_PRELOAD="+library)
	know(tr, pid)
	p := s.byPID[pid]
	file := p.newest.file(library)
	qt.Check(t, qt.ErrorIs(file.refusal, errTablesFull))
	qt.Check(t, qt.IsNil(file.rows))
	qt.Check(t, qt.IsFalse(p.lacksRows))
	qt.Check(t, qt.DeepEquals(warnings, []string{fmt.Sprintf("process %d: call stacks may end early: %v", pid, errTablesFull)}))

	s.rows.tables.taken = free
	s.mu.Lock()
	p.lacksRows = true
	s.mu.Unlock()
	s.rowsWereRead()
	s.Settle()
	qt.Check(t, qt.ErrorIs(file.refusal, errTablesFull))
	know(tr, pid)
	qt.Check(t, qt.IsNil(file.refusal))
	qt.Assert(t, qt.IsNotNil(file.table))
	qt.Check(t, qt.Equals(file.table.users, 1))
}

// file returns the mapped file with a path.
func (v *spaceView) file(path string) *codeFile {
	for _, m := range v.mappings {
		if m.file.path == path {
			return m.file
		}
	}
	return nil
}

// The code that the kernel gives to each process has rows as well.
func TestVDSOIsKnown(t *testing.T) {
	pid := sleeper(t)
	tr := knowing(t, nil, pid)
	vdso := tr.Spaces.byPID[pid].newest.file("[vdso]")
	qt.Assert(t, qt.IsNotNil(vdso))
	qt.Assert(t, qt.IsNotNil(vdso.elf))
	qt.Assert(t, qt.IsNotNil(vdso.table))
	_, ok := vdso.elf.Lookup("__vdso_clock_gettime")
	qt.Check(t, qt.IsTrue(ok))
}
