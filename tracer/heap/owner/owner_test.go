package owner

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

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
	pythons, _ := filepath.Glob("/root/.pyenv/versions/3.1[0-4]*/bin/python3")
	for _, exe := range pythons {
		t.Run(strings.Split(exe, "/")[4], func(t *testing.T) {
			p := start(t, exe, "testdata/holders.py")
			found, err := heapOf(t, p.pid, "Target").Find(context.Background(), Limits{}, func(uint64) bool { return false })
			qt.Assert(t, qt.IsNil(err))
			var paths []Path
			for _, o := range found {
				paths = append(paths, o.Path)
				t.Logf("%-30s %s", p.labels[o.Object], o.Path)
				delete(p.labels, o.Object)
			}
			var wrong []string
			p.ask(paths, &wrong)
			for i, text := range wrong {
				qt.Check(t, qt.Equals(text, ""), qt.Commentf("%s", paths[i]))
			}
			qt.Check(t, qt.HasLen(p.labels, 0))
			t.Log(len(found))
		})
	}
}
