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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"ttmem/e2e/rig"
	"ttmem/symbolize"
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

func start(t *testing.T, exe string, args ...string) *program {
	cmd := exec.Command(exe, args...)
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
	if !p.out.Scan() {
		t.Fatalf("the program ended: %s", stderr.String())
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(p.out.Bytes(), &p.labels)))
	return p
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
	maps, files, err := openMapped(&host.Proc{}, pid)
	qt.Assert(t, qt.IsNil(err))
	p := open(Thread(pid), maps, files)
	qt.Assert(t, qt.IsNotNil(p.heap), qt.Commentf("%v", p.noHeap))
	t.Cleanup(p.close)
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
	for _, python := range interpreters(t) {
		t.Run(python.Name, func(t *testing.T) {
			p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
			p.check(heapOf(t, p.pid))
		})
	}
}

// TestEveryPathToATensorIsTrue: the same with a class that nanobind made, for the versions of Python
// for which there is no ttnn.
func TestEveryPathToATensorIsTrue(t *testing.T) {
	tested := map[string]bool{"3.10": true, "3.12": true}
	for _, python := range interpreters(t) {
		version := python.Version[:strings.LastIndexByte(python.Version, '.')]
		if tested[version] {
			continue
		}
		tested[version] = true
		t.Run(python.Name, func(t *testing.T) {
			module, err := rig.Wheel(t.Context(), "manifold3d", "3.5.4", version)
			qt.Assert(t, qt.IsNil(err))
			p := start(t, python.Exe, filepath.Join("testdata", "holders.py"), module)
			read := processOf(t, p.pid)
			for instance := range p.labels {
				_, err := read.tensors.of(instance)
				qt.Check(t, qt.IsNil(err))
			}
			p.check(read.heap)
		})
	}
}

// check searches the program's targets, and asks it whether the paths are true.
func (p *program) check(h *Heap) {
	p.t.Helper()
	found, _, err := h.Find(Limits{}, all)
	qt.Assert(p.t, qt.IsNil(err))
	var paths []Path
	for _, o := range found {
		paths = append(paths, o.Path)
		p.t.Logf("%-30s %s", p.labels[o.Object], o.Path)
		delete(p.labels, o.Object)
	}
	qt.Check(p.t, qt.HasLen(p.labels, 0), qt.Commentf("not found"))
	var wrong []string
	p.ask(paths, &wrong)
	for i, text := range wrong {
		qt.Check(p.t, qt.Equals(text, ""), qt.Commentf("%s", paths[i]))
	}
}

// TestPathsWhileObjectsMove: a program moves half of its objects between two dicts. No path is one
// that the object never had, and those that move are found as well.
func TestPathsWhileObjectsMove(t *testing.T) {
	const paths, searches = 5000, 100
	for _, python := range interpreters(t) {
		for _, speed := range []struct{ name, pause string }{{"full speed", "0"}, {"with pauses", "500"}} {
			t.Run(python.Name+" "+speed.name, func(t *testing.T) {
				p := start(t, python.Exe, filepath.Join("testdata", "moving.py"), speed.pause)
				h := heapOf(t, p.pid)
				n, moving := 0, 0
				i := 0
				for ; n < paths; i++ {
					qt.Assert(t, qt.IsTrue(i < searches), qt.Commentf("%d paths", n))
					h.memory.forget()
					found, _, err := h.Find(Limits{}, all)
					qt.Assert(t, qt.IsNil(err))
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
						qt.Check(t, qt.Matches(path, "local moving of move\\(\\)|a Target without a name"))
					}
				}
				t.Logf("%d searches: %d paths, %d of objects that move", i, n, moving)
				qt.Check(t, qt.IsTrue(moving > 500*i/2), qt.Commentf("%d of objects that move in %d searches", moving, i))
			})
		}
	}
}

// damaged is a memory in which each page has some other bytes.
type damaged struct {
	of     Memory
	random *rand.Rand
}

func (d *damaged) Read(at uint64, b []byte) (int, error) {
	n, err := d.of.Read(at, b)
	for range d.random.IntN(8) {
		b[d.random.IntN(len(b))] = byte(d.random.Uint32())
	}
	return n, err
}

// TestADamagedHeap: whatever the memory has, a search ends within its bounds.
func TestADamagedHeap(t *testing.T) {
	for _, python := range interpreters(t)[:1] {
		p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
		found := 0
		for seed := range uint64(40) {
			h := heapOf(t, p.pid)
			h.memory.from = &damaged{h.memory.from, rand.New(rand.NewPCG(seed, 1))}
			list, _, _ := h.Find(Limits{Objects: 200_000, Bytes: 64 << 20}, all)
			for _, o := range list {
				found++
				_ = o.Path.String()
			}
		}
		t.Logf("%d paths", found)
	}
}

// interpreters are the Pythons of this machine, and one of the newest version.
func interpreters(t *testing.T) []rig.Interpreter {
	t.Helper()
	list := rig.Interpreters()
	newest := func(p rig.Interpreter) bool { return strings.HasPrefix(p.Version, "3.14.") }
	if !slices.ContainsFunc(list, newest) {
		p, err := rig.DebianPython(t.Context(), "forky", "3.14")
		qt.Assert(t, qt.IsNil(err))
		list = append(slices.Clone(list), p)
	}
	return list
}

// TestAHeapThatCostsTime: objects can share their items, so that little memory leads to a search
// without an end.
func TestAHeapThatCostsTime(t *testing.T) {
	python := interpreters(t)[0]
	p := start(t, python.Exe, filepath.Join("testdata", "aliased.py"))
	begun := time.Now()
	_, _, err := heapOf(t, p.pid).Find(Limits{Time: time.Second}, all)
	qt.Check(t, qt.ErrorIs(err, errTooMuch))
	qt.Check(t, qt.IsTrue(time.Since(begun) < time.Minute), qt.Commentf("%v", time.Since(begun)))
}

// TestHolders: a search runs in a child process, which ends with it.
func TestHolders(t *testing.T) {
	python := interpreters(t)[0]
	p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
	readers := host.NewReaders()
	defer readers.Close()
	holders, cost, err := Holders(t.Context(), readers, p.pid, map[uint64]uint64{8: 1})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(holders, 0)) // its targets are no tensors
	qt.Check(t, qt.IsTrue(cost.Objects > 1000), qt.Commentf("%+v", cost))
	qt.Check(t, qt.IsTrue(cost.CPU > 0 && cost.Memory > 1<<20 && cost.Memory < maxMemory), qt.Commentf("%+v", cost))

	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, _, err = Holders(ctx, readers, p.pid, nil)
	qt.Check(t, qt.ErrorIs(err, context.Canceled))

	_, _, err = Holders(t.Context(), readers, os.Getpid(), nil)
	qt.Check(t, qt.ErrorIs(err, ErrNoPython))
}

// TestOffsetsThatAreWrong: those of one version are refused for the interpreters of the others.
func TestOffsetsThatAreWrong(t *testing.T) {
	for _, python := range interpreters(t) {
		p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
		h := heapOf(t, p.pid)
		right := h.Runtime.Minor
		for h.Runtime.Minor = 9; h.Runtime.Minor <= 15; h.Runtime.Minor++ {
			found, _, err := h.Find(Limits{}, all)
			if h.Runtime.Minor == right {
				qt.Check(t, qt.IsNil(err))
				continue
			}
			qt.Check(t, qt.HasLen(found, 0))
			qt.Check(t, qt.ErrorMatches(err, "owners in Python 3.(9|15) are not supported|the interpreter's .* are not where they should be: .*"))
		}
	}
}

// TestPythonThatEnds: a program that ends has nothing to be found, and that is no wrong table.
func TestPythonThatEnds(t *testing.T) {
	for _, python := range interpreters(t) {
		p := start(t, python.Exe, filepath.Join("testdata", "ends.py"))
		found, _, err := heapOf(t, p.pid).Find(Limits{}, all)
		qt.Check(t, qt.HasLen(found, 0))
		qt.Check(t, qt.ErrorIs(err, ErrNoPython), qt.Commentf("%s", python.Exe))
	}
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
		{"free-threaded", "_PyRuntime", 16, 1, "CPython 3.14.*: a free-threaded Python: not supported"},
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
			p := start(t, filepath.Join(root, filepath.Base(known.Exe)), "-c", "print('{}', flush=True); input()")
			_, _, err = Holders(t.Context(), readers, p.pid, nil)
			qt.Check(t, qt.ErrorMatches(err, test.want))
		})
	}
}
