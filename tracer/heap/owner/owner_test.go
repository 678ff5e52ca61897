package owner

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/host"
)

// memoryOf is the memory of a process, read by this one.
type memoryOf int

func (pid memoryOf) Memory(_ context.Context, parts []host.Range) (int, error) {
	for i, p := range parts {
		local := []unix.Iovec{{Base: &p.Data[0], Len: uint64(len(p.Data))}}
		n, err := unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(p.Address), Len: len(p.Data)}}, 0)
		if err == unix.ESRCH {
			return i, err
		}
		if n != len(p.Data) {
			return i, nil
		}
	}
	return len(parts), nil
}

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

// heapOf returns the heap of a program, in which instances of a type are searched.
func heapOf(t *testing.T, pid int, target string) *Heap {
	t.Helper()
	proc := host.Proc{}
	maps, err := proc.CodeMappings(pid)
	qt.Assert(t, qt.IsNil(err))
	for _, m := range maps {
		if !strings.HasPrefix(m.Path, "/") {
			continue
		}
		e, err := symbolize.Open(m.Path)
		if err != nil {
			continue
		}
		t.Cleanup(func() { e.Close() })
		runtime, err := python.Find(e)
		if err != nil {
			continue
		}
		bias, ok := e.Bias(m.Start, m.Offset)
		qt.Assert(t, qt.IsTrue(ok))
		return &Heap{
			Memory: memoryOf(pid), Runtime: runtime, Bias: bias,
			Symbols: func(name string) uint64 {
				s, _ := e.Lookup(name)
				return s.Addr
			},
			IsTarget: func(name, _ string) bool { return name == target },
			User:     func(_, file string) bool { return false },
		}
	}
	t.Fatal("no interpreter")
	return nil
}

// TestEveryPathIsTrue: each path to an object is evaluated in the process itself.
func TestEveryPathIsTrue(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python.Name, func(t *testing.T) {
			p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
			found, _, err := heapOf(t, p.pid, "Target").Find(context.Background(), Limits{}, func(uint64) bool { return false })
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
				found, _, err := heapOf(t, p.pid, "Target").Find(context.Background(), Limits{}, func(uint64) bool { return false })
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

func (d *damaged) Memory(ctx context.Context, parts []host.Range) (int, error) {
	n, err := d.of.Memory(ctx, parts)
	for _, p := range parts[:n] {
		for range d.random.IntN(8) {
			p.Data[d.random.IntN(len(p.Data))] = byte(d.random.Uint32())
		}
	}
	return n, err
}

// TestADamagedHeap: whatever the memory has, a search ends within its bounds.
func TestADamagedHeap(t *testing.T) {
	for _, python := range interpreters(t)[:1] {
		p := start(t, python.Exe, filepath.Join("testdata", "holders.py"))
		found := 0
		for seed := range uint64(40) {
			h := heapOf(t, p.pid, "Target")
			h.Memory = &damaged{h.Memory, rand.New(rand.NewPCG(seed, 1))}
			list, _, _ := h.Find(context.Background(), Limits{Objects: 200_000, Bytes: 64 << 20}, func(uint64) bool { return false })
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
	_, _, err := heapOf(t, p.pid, "Target").Find(context.Background(), Limits{Time: time.Second}, func(uint64) bool { return false })
	qt.Check(t, qt.ErrorIs(err, errTooMuch))
	qt.Check(t, qt.IsTrue(time.Since(begun) < time.Minute), qt.Commentf("%v", time.Since(begun)))
}
