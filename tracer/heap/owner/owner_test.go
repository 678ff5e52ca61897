package owner

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"ttmem/e2e/rig"
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
	qt.Assert(t, qt.IsNotNil(p.heap))
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
			found, _, err := heapOf(t, p.pid).Find(Limits{}, all)
			qt.Assert(t, qt.IsNil(err))
			var paths []Path
			for _, o := range found {
				paths = append(paths, o.Path)
				t.Logf("%-30s %s", p.labels[o.Object], o.Path)
				delete(p.labels, o.Object)
			}
			qt.Check(t, qt.HasLen(p.labels, 0), qt.Commentf("not found"))
			var wrong []string
			p.ask(paths, &wrong)
			for i, text := range wrong {
				qt.Check(t, qt.Equals(text, ""), qt.Commentf("%s", paths[i]))
			}
		})
	}
}

// TestPathsWhileObjectsMove: a program moves its objects between two dicts at full speed. No path
// is one that the object never had.
func TestPathsWhileObjectsMove(t *testing.T) {
	const paths, searches = 5000, 100
	for _, python := range interpreters(t) {
		t.Run(python.Name, func(t *testing.T) {
			p := start(t, python.Exe, filepath.Join("testdata", "moving.py"))
			n, moved := 0, map[string]bool{}
			for i := 0; n < paths; i++ {
				qt.Assert(t, qt.IsTrue(i < searches), qt.Commentf("%d paths", n))
				found, _, err := heapOf(t, p.pid).Find(Limits{}, all)
				qt.Assert(t, qt.IsNil(err))
				for _, o := range found {
					label, path := p.labels[o.Object], o.Path.String()
					here, there := "left['"+label+"']", "right['"+label+"']"
					if path == here || path == there {
						n++
						moved[path] = true
						continue
					}
					// on its way it is in a variable, or nowhere
					qt.Check(t, qt.Matches(path, "local moving of move\\(\\)|a Target without a name"))
				}
			}
			// of 500 that stay and 500 that move
			qt.Check(t, qt.IsTrue(len(moved) > 600), qt.Commentf("%d places", len(moved)))
		})
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

// interpreters are the Pythons of this machine whose heaps can be read.
func interpreters(t *testing.T) (list []rig.Interpreter) {
	t.Helper()
	for _, p := range rig.Interpreters() {
		if !strings.HasPrefix(p.Version, "3.14.") {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		t.Fatal("no CPython 3.10 to 3.13: neither pyenv nor PATH has one")
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
