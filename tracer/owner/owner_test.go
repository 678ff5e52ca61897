package owner

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"ttmem/e2e/fuzztest"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	cpython "ttmem/symbolize/python"
	"ttmem/tracer/host"
)

// program is a Python program that answers.
type program struct {
	t   *testing.T
	pid int
	in  io.Writer
	out *bufio.Scanner
	// labels are those of the Targets, by their addresses.
	labels map[uint64]string
}

// start starts a program, which writes a JSON document first.
func start(t *testing.T, cmd *exec.Cmd, first any) *program {
	t.Helper()
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &program{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 64<<20)
	for p.out.Scan() {
		if json.Unmarshal(p.out.Bytes(), first) == nil {
			return p
		}
	}
	_ = cmd.Wait()
	t.Fatalf("the program ended: %s", stderr.String())
	return nil
}

// startTargets starts a program whose targets are instances of a class of Python.
func startTargets(t *testing.T, exe, script string, args ...string) *program {
	t.Helper()
	var labels map[uint64]string
	p := start(t, exec.Command(exe, append([]string{filepath.Join("testdata", script)}, args...)...), &labels)
	p.labels = labels
	return p
}

// A setting is a Python, and what targets are in its programs.
type setting struct {
	name    string
	release string // of ttnn, if they are its tensors
	start   func(t *testing.T, script string, args ...string) (*program, *Heap)
}

// settings are all Pythons with a class of Python; those for which there is no ttnn with a class that
// nanobind made; and the others with tensors of several releases of ttnn.
func settings(t *testing.T) (list []setting) {
	t.Helper()
	tested := make(map[string]bool)
	for _, python := range interpreters(t) {
		list = append(list, setting{python.Name, "", func(t *testing.T, script string, args ...string) (*program, *Heap) {
			p := startTargets(t, python.Exe, script, args...)
			return p, heapOf(t, p.pid)
		}})
		version := python.Version[:strings.LastIndexByte(python.Version, '.')]
		if tested[version] || slices.Contains(rig.PythonVersions, version) {
			continue
		}
		tested[version] = true
		list = append(list, setting{python.Name + " nanobind", "", func(t *testing.T, script string, args ...string) (*program, *Heap) {
			module, err := rig.Nanobind(t.Context(), version)
			qt.Assert(t, qt.IsNil(err))
			p := startTargets(t, python.Exe, script, append(args, "manifold3d", module)...)
			read := processOf(t, p.pid)
			for instance := range p.labels {
				_, err := read.tensors.of(instance)
				qt.Check(t, qt.IsNil(err))
			}
			return p, read.heap
		}})
	}
	list = append(list, setting{"3.12 numpy 2", "", func(t *testing.T, script string, args ...string) (*program, *Heap) {
		python, err := rig.PythonWith(t.Context(), "3.12", os.Stderr, "numpy==2.3.5") // ttnn has numpy 1
		qt.Assert(t, qt.IsNil(err))
		p := startTargets(t, python, script, args...)
		return p, heapOf(t, p.pid)
	}})
	for _, version := range []string{"0.81.1", "0.76.0", "0.72.0", "0.66.0"} {
		for _, python := range rig.PythonVersions {
			list = append(list, setting{python + " ttnn " + version, version, func(t *testing.T, script string, args ...string) (*program, *Heap) {
				var labels map[uint64]string
				p := start(t, ttnn(t, version, python, script, append(args, "ttnn", tracetest.Programs(t))...), &labels)
				p.labels = labels
				read := processOf(t, p.pid)
				buffers := make(map[uint64]bool)
				for instance := range p.labels {
					tensor, err := read.tensors.Read(instance)
					qt.Check(t, qt.IsNil(err))
					qt.Check(t, qt.Equals(tensor.String(), "bf16[32,32] TILE"))
					buffers[tensor.Buffer] = true
				}
				qt.Check(t, qt.HasLen(buffers, len(p.labels)))
				return p, read.heap
			}})
		}
	}
	return list
}

// ttnn returns a command that runs a script with a release of ttnn.
func ttnn(t *testing.T, version, python, script string, args ...string) *exec.Cmd {
	t.Helper()
	env, err := rig.Setup(t.Context(), rig.Options{Version: version, Python: python, Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	return env.Command(context.Background(), rig.N150, append([]string{filepath.Join("testdata", script)}, args...)...)
}

// ask returns the answer to a document.
func (p *program) ask(document, answer any) {
	p.t.Helper()
	b, err := json.Marshal(document)
	qt.Assert(p.t, qt.IsNil(err))
	_, err = p.in.Write(append(b, '\n'))
	qt.Assert(p.t, qt.IsNil(err))
	qt.Assert(p.t, qt.IsTrue(p.out.Scan()))
	qt.Assert(p.t, qt.IsNil(json.Unmarshal(p.out.Bytes(), answer)))
}

// processOf returns a process, read by this one.
func processOf(t *testing.T, pid int) *process {
	t.Helper()
	o, err := new(Searcher).open(t.Context(), &host.Proc{}, pid)
	qt.Assert(t, qt.IsNil(err))
	p := newProcess(&host.ThreadMemory{Thread: pid}, o.maps, o.files)
	qt.Assert(t, qt.IsNotNil(p.heap), qt.Commentf("%v", p.noHeap))
	return p
}

// heapOf returns the heap of a program, in which instances of Target are searched.
func heapOf(t *testing.T, pid int) *Heap {
	t.Helper()
	h := processOf(t, pid).heap
	h.IsTarget = func(name, _ string) bool { return name == "Target" }
	h.User = func(_, file string) bool { return false }
	return h
}

// all is for a search that does not end early.
func all(uint64) bool { return false }

// TestEveryPathIsTrue: each path to an object is evaluated in the process itself.
func TestEveryPathIsTrue(t *testing.T) {
	for _, with := range settings(t) {
		if !tracetest.Tests(with.release) {
			continue
		}
		t.Run(with.name, func(t *testing.T) {
			p, h := with.start(t, "holders.py")
			p.check(h)
		})
	}
}

// pathsOf are the paths of some of the targets in holders.py.
var pathsOf = map[string]string{
	"lru_cache (1,)": "bounded.cache[1]", "lru_cache ('a',)": "bounded.cache['a']", "lru_cache (1, 2)": "bounded.cache[…]",
	"cache (2,)": "unbounded.cache[2][0]", "first cell": "cells.__closure__[0].cell_contents", "second cell": "cells.__closure__[1].cell_contents",
	"list in a cell": "cells.__closure__[2].cell_contents[1]", "cell": "cell.cell_contents", "subclass of deque": "inherited[0]",
	"method of C": "append.__self__[0]", "callback of a weak reference": "called.__callback__.__defaults__[0]",
	"attribute of a weak reference": "reference.extra", "array 5": "objects[6]", "table 4": "table.flat[4]",
	"every other 1": "every_other[1]", "every other 0": "every_other.base[0]", "array without dimensions": "nothing.flat[0]",
}

// check searches the program's targets, and asks it whether the paths are true.
func (p *program) check(h *Heap) {
	p.t.Helper()
	found, _, err := h.Find(Limits{}, all)
	qt.Assert(p.t, qt.IsNil(err))
	var paths []Path
	for _, o := range found {
		paths = append(paths, o.Path)
		label := p.labels[o.Object]
		p.t.Logf("%-30s %s", label, o.Path)
		if path, named := pathsOf[label]; named {
			qt.Check(p.t, qt.Equals(o.Path.String(), path), qt.Commentf("%s", label))
		}
		delete(p.labels, o.Object)
	}
	qt.Check(p.t, qt.HasLen(p.labels, 0), qt.Commentf("not found"))
	var wrong []string
	p.ask(paths, &wrong)
	for i, text := range wrong {
		qt.Check(p.t, qt.Equals(text, ""), qt.Commentf("%s", paths[i]))
	}
}

// TestPathsWhileObjectsMove: a program moves half of its objects between two dicts, as fast as it can.
// No path is one that the object never had, and those that move are found as well.
func TestPathsWhileObjectsMove(t *testing.T) {
	const searches = 100
	paths := tracetest.Many(2000, 5000)
	for i, with := range settings(t) {
		if !tracetest.Tests(with.release) || i%3 > 0 && !*tracetest.Long { // TestEveryPathIsTrue has them all
			continue
		}
		t.Run(with.name, func(t *testing.T) {
			p, h := with.start(t, "moving.py")
			n, most := 0, 0
			i := 0
			for ; n < paths; i++ {
				qt.Assert(t, qt.IsTrue(i < searches), qt.Commentf("%d paths", n))
				h.memory.forget()
				found, _, err := h.Find(Limits{}, all)
				qt.Assert(t, qt.IsNil(err))
				moving := 0
				for _, o := range found {
					label, path := p.labels[o.Object], o.Path.String()
					if path == "left['"+label+"']" || path == "right['"+label+"']" {
						n++
						if number, _ := strconv.Atoi(label); number%2 == 0 {
							moving++
						}
						continue
					}
					// on its way it is in a variable, or nowhere
					qt.Check(t, qt.Matches(path, "local moving of move\\(\\)|a (Target|Tensor) without a name"))
				}
				most = max(most, moving)
			}
			t.Logf("%d searches: %d paths, at most %d of objects that move", i, n, most)
			// in a search during which the kernel stops this test for a while, the program moves more of them
			qt.Check(t, qt.IsTrue(most > 500/2), qt.Commentf("%d of the objects that move", most))
		})
	}
}

// damaged is a memory in which each block has some other bytes.
type damaged struct {
	of     host.Memory
	random *rand.Rand
}

func (d *damaged) Read(pieces []host.Piece) error {
	err := d.of.Read(pieces)
	for range d.random.IntN(8) {
		b := pieces[d.random.IntN(len(pieces))].Data
		b[d.random.IntN(len(b))] = byte(d.random.Uint32())
	}
	return err
}

// TestADamagedHeap: whatever the memory has, a search ends within its bounds.
func TestADamagedHeap(t *testing.T) {
	for _, python := range interpreters(t)[:1] {
		p := startTargets(t, python.Exe, "holders.py")
		found := 0
		for seed := range uint64(tracetest.Many(15, 40)) {
			h := heapOf(t, p.pid)
			h.memory.Memory = &damaged{h.memory.Memory, rand.New(rand.NewPCG(seed, 1))}
			list, _, _ := h.Find(Limits{Objects: 200_000, Bytes: 64 << 20}, all)
			for _, o := range list {
				found++
				_ = o.Path.String()
			}
		}
		t.Logf("%d paths", found)
	}
}

// interpreters are the Pythons of this machine, and Debian's of the versions for which there is no ttnn:
// distributions change structures, too.
func interpreters(t *testing.T) []rig.Interpreter {
	t.Helper()
	list := slices.Clone(rig.Interpreters())
	for _, of := range rig.Debian {
		p, err := rig.DebianPython(t.Context(), of.Suite, of.Version)
		qt.Assert(t, qt.IsNil(err))
		list = append(list, p)
	}
	return list
}

// TestAHeapThatCostsTime: objects can share their items, so that little memory leads to a search
// without an end.
func TestAHeapThatCostsTime(t *testing.T) {
	python := interpreters(t)[0]
	p := startTargets(t, python.Exe, "aliased.py")
	var err error
	fuzztest.Ends("the search", func() { _, _, err = heapOf(t, p.pid).Find(Limits{References: 1 << 24}, all) })
	qt.Check(t, qt.Equals[error](err, tooMany{1 << 24, "references"}))
	fuzztest.Ends("the search", func() { _, _, err = heapOf(t, p.pid).Find(Limits{Time: time.Second}, all) })
	qt.Check(t, qt.ErrorMatches(err, "stopped after 1 s"))
}

// TestFilesAreChosenByTheirSymbols: not by their names, and a file that changes is inspected again.
func TestFilesAreChosenByTheirSymbols(t *testing.T) {
	python := interpreters(t)[0]
	exe, err := filepath.EvalSymlinks(python.Exe)
	qt.Assert(t, qt.IsNil(err))
	libc := ""
	maps, err := (&host.Proc{}).FileMappings(startTargets(t, python.Exe, "holders.py").pid)
	qt.Assert(t, qt.IsNil(err))
	var s Searcher
	kinds := make(map[string]fileKind)
	for _, m := range maps {
		file, err := os.Open(m.Path)
		qt.Assert(t, qt.IsNil(err))
		kinds[m.Path], err = s.kindOf(file)
		file.Close()
		qt.Assert(t, qt.IsNil(err))
		if strings.HasPrefix(filepath.Base(m.Path), "libc.") || strings.HasPrefix(filepath.Base(m.Path), "libc-") {
			libc = m.Path
		}
	}
	pythons := 0
	for path, kind := range kinds {
		if kind == hasPython {
			pythons++
			qt.Check(t, qt.IsTrue(path == exe || strings.Contains(path, "libpython")), qt.Commentf("%s", path))
		}
	}
	qt.Check(t, qt.Equals(pythons, 1))
	qt.Check(t, qt.HasLen(s.kinds, len(kinds)))

	other := filepath.Join(t.TempDir(), "python.cpython-310-x86_64-linux-gnu.so")
	for _, c := range []struct {
		from string
		want fileKind
	}{{libc, 0}, {exe, kinds[exe]}, {libc, 0}} {
		b, err := os.ReadFile(c.from)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(other, b, 0o600)))
		file, err := os.Open(other)
		qt.Assert(t, qt.IsNil(err))
		kind, err := s.kindOf(file)
		file.Close()
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(kind, c.want))
	}
}

// TestABusyHostFindsTheSame: a search among more loops than there are processors finds as much as before.
func TestABusyHostFindsTheSame(t *testing.T) {
	python := interpreters(t)[0]
	p := startTargets(t, python.Exe, "holders.py")
	h := heapOf(t, p.pid)
	quiet, _, err := h.Find(Limits{}, all)
	qt.Assert(t, qt.IsNil(err))
	for range 4 * runtime.NumCPU() {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		qt.Assert(t, qt.IsNil(loop.Start()))
		t.Cleanup(func() {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		})
	}
	h.memory.forget()
	busy, _, err := h.Find(Limits{}, all)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(len(busy), len(quiet)))
}

// TestHolders: a search runs in a child process, which ends with it.
func TestHolders(t *testing.T) {
	python := interpreters(t)[0]
	p := startTargets(t, python.Exe, "holders.py")
	readers := host.NewReaders()
	defer readers.Close()
	holders, cost, err := new(Searcher).Holders(t.Context(), readers, p.pid, map[uint64]uint64{8: 1})
	qt.Check(t, qt.ErrorIs(err, errNoFunctions)) // its targets are no tensors
	qt.Check(t, qt.HasLen(holders, 0))
	qt.Check(t, qt.IsTrue(cost.Objects > 1000), qt.Commentf("%+v", cost))
	qt.Check(t, qt.IsTrue(cost.CPU > 0 && cost.Memory > 1<<20 && cost.Memory < maxMemory), qt.Commentf("%+v", cost))

	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, _, err = new(Searcher).Holders(ctx, readers, p.pid, nil)
	qt.Check(t, qt.ErrorIs(err, context.Canceled))

	_, _, err = new(Searcher).Holders(t.Context(), readers, os.Getpid(), nil)
	qt.Check(t, qt.ErrorIs(err, ErrNoPython))
}

// TestOffsetsThatAreWrong: those of one version are refused for the interpreters of the others.
func TestOffsetsThatAreWrong(t *testing.T) {
	heaps := make(map[int]*Heap)
	offsets := make(map[int]cpython.Heap)
	for _, python := range interpreters(t) {
		h := heapOf(t, startTargets(t, python.Exe, "holders.py").pid)
		heaps[h.Runtime.Minor], offsets[h.Runtime.Minor] = h, h.Runtime.Heap
	}
	for right, h := range heaps {
		for minor := range offsets {
			h.Runtime.Heap = offsets[minor]
			found, _, err := h.Find(Limits{}, all)
			if minor == right {
				qt.Check(t, qt.IsNil(err))
				continue
			}
			qt.Check(t, qt.HasLen(found, 0))
			qt.Check(t, qt.ErrorMatches(err, "the interpreter's .* are not where they should be: .*"))
		}
	}
}

// TestPythonThatEnds: a program that ends has nothing to be found, and that is no wrong table.
func TestPythonThatEnds(t *testing.T) {
	for _, python := range interpreters(t) {
		p := startTargets(t, python.Exe, "ends.py")
		found, _, err := heapOf(t, p.pid).Find(Limits{}, all)
		qt.Check(t, qt.HasLen(found, 0))
		qt.Check(t, qt.ErrorIs(err, ErrNoPython), qt.Commentf("%s", python.Exe))
	}
}

// TestFreeThreadedPython: a search says that it does not search there.
func TestFreeThreadedPython(t *testing.T) {
	if !*tracetest.Long && !rig.HasFreeThreadedPython() {
		t.Skip("only -long builds a free-threaded Python")
	}
	python, err := rig.FreeThreadedPython(t.Context())
	qt.Assert(t, qt.IsNil(err))
	p := start(t, exec.Command(python.Exe, "-c", "print('{}', flush=True); input()"), new(struct{}))
	readers := host.NewReaders()
	defer readers.Close()
	_, _, err = new(Searcher).Holders(t.Context(), readers, p.pid, nil)
	qt.Check(t, qt.ErrorMatches(err, "owners in a free-threaded Python are not searched"))
}

// TestUnsupportedPythons: a search says why there is no heap to be read.
func TestUnsupportedPythons(t *testing.T) {
	known, err := rig.DebianPython(t.Context(), "forky", "3.14")
	qt.Assert(t, qt.IsNil(err))
	readers := host.NewReaders()
	defer readers.Close()
	for _, test := range []struct {
		name, symbol string
		offset       uint64
		word         uint32
		want         string
	}{
		{"newer", "Py_Version", 0, 0x030f00f0, "CPython 3.15.0: only 3.10 to 3.14 are supported"},
		{"free-threaded", "_PyRuntime", 16, 1, "CPython 3.14.*: debug offsets: object type at 8, not at 24: unknown layout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			qt.Assert(t, qt.IsNil(exec.Command("cp", "-rs", filepath.Dir(known.Exe), root).Run()))
			exe := filepath.Join(root, "usr", "bin", "python3.14")
			b, err := os.ReadFile(exe)
			qt.Assert(t, qt.IsNil(err))
			e, err := symbolize.Open(exe)
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			s, ok := e.Lookup(test.symbol)
			qt.Assert(t, qt.IsTrue(ok))
			at, ok := e.FileOffset(s.Addr + test.offset)
			qt.Assert(t, qt.IsTrue(ok))
			binary.LittleEndian.PutUint32(b[at:], test.word)
			qt.Assert(t, qt.IsNil(os.Remove(exe)))
			qt.Assert(t, qt.IsNil(os.WriteFile(exe, b, 0o755)))
			cmd := exec.Command(filepath.Join(root, filepath.Base(known.Exe)), "-c", "print('{}', flush=True); input()")
			p := start(t, cmd, new(struct{}))
			_, _, err = new(Searcher).Holders(t.Context(), readers, p.pid, nil)
			qt.Check(t, qt.ErrorMatches(err, test.want))
		})
	}
}
