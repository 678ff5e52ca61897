package stack

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// A process that executes programs after Expect is published at once, and no probe is placed on
// their dynamic linker.
func TestLoaderIsProbedAhead(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read go; exec sleep 1000")
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pid := cmd.Process.Pid
	tr := knowing(t, nil)
	qt.Assert(t, qt.IsNil(tr.Expect(pid, os.Getuid(), nil)))
	qt.Check(t, qt.IsTrue(tr.Expects(pid)))
	qt.Check(t, qt.IsNil(tr.Expect(pid, os.Getuid(), nil))) // once is enough
	qt.Check(t, qt.HasLen(tr.ahead, 1))
	_, err = io.WriteString(in, "\n")
	qt.Assert(t, qt.IsNil(err))
	known := tracetest.Eventually(time.Minute, func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // before, else the code may be the shell's
		know(tr, pid)
		p := tr.byPID[pid]
		return string(name) == "sleep\n" && p != nil && p.newest != nil && loaderOf(p) != nil
	})
	qt.Assert(t, qt.IsTrue(known))
	p := tr.byPID[pid]
	qt.Check(t, qt.IsNil(p.loader.probe))
	m := loaderOf(p)
	qt.Check(t, qt.IsTrue(isProbed(t, pid, m, m.file.loader.debugState.Addr)))
	cmd.Process.Kill()
	cmd.Wait()
	tr.Forget(p.program)
	tr.Settle()
	qt.Check(t, qt.IsFalse(tr.Expects(pid)))
	qt.Check(t, qt.Equals(tr.expected.Of(os.Getuid()), 0))
}

// So is the probe on a CPython that is named. If a thread other than the first one executes the program, the kernel does
// not place what was placed ahead: it is placed as in other processes.
func TestPythonIsProbedAhead(t *testing.T) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	qt.Assert(t, qt.IsNil(err))
	executable := strings.TrimSpace(string(out))
	const program = "print('runs', flush=True); input()"
	for _, c := range []struct {
		name    string
		command []string
		ahead   bool
	}{
		{"first thread", []string{"sh", "-c", `echo ready; read go; exec "$0" -c "$1"`, executable, program}, true},
		{"other thread", []string{"python3", "-c", `import os, sys, threading
print("ready", flush=True)
input()
threading.Thread(target=os.execv, args=(sys.argv[1], [sys.argv[1], "-c", sys.argv[2]])).start()`, executable, program}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := tracetest.Start(t, c.command...)
			pid := program.Process.Pid
			tr := knowing(t, nil)
			file := host.OpenPython([]string{executable})
			qt.Assert(t, qt.IsNotNil(file))
			python := tr.PythonIn(file, file.Name(), os.Getuid())
			qt.Assert(t, qt.IsNotNil(python))
			_, err := tr.objs.AddProcess(pid, 0)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(tr.Expect(pid, os.Getuid(), python)))
			qt.Assert(t, qt.Equals(program.Do(t, ""), "runs"))
			know(tr, pid)
			p := tr.byPID[pid]
			qt.Check(t, qt.IsTrue(p.dealloc.placed && p.loader.placed))
			qt.Check(t, qt.Equals(p.dealloc.probe == nil, c.ahead))
			qt.Check(t, qt.Equals(p.loader.probe == nil, c.ahead))
			qt.Check(t, qt.IsTrue(p.showsPython)) // stacks have Python frames
			m := loaderOf(p)
			qt.Check(t, qt.IsTrue(isProbed(t, pid, m, m.file.loader.debugState.Addr)))
			for i := range p.newest.mappings {
				if m := &p.newest.mappings[i]; m.file == python.file {
					qt.Check(t, qt.IsTrue(isProbed(t, pid, m, m.file.python.CodeDealloc)))
				}
			}
			program.Tell(t, "")
			qt.Check(t, qt.IsNil(program.Wait()))
		})
	}
	tr := knowing(t, nil)

	other, err := os.Open("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(tr.PythonIn(other, other.Name(), os.Getuid())))
}

// A user has as many commands as are prepared for, and others have room all the same.
func TestManyExpected(t *testing.T) {
	tr := knowing(t, nil)
	var commands []*exec.Cmd
	for range maxExpected + 2 {
		cmd := exec.Command("sleep", "1000")
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		commands = append(commands, cmd)
	}
	for _, cmd := range commands[:maxExpected] {
		qt.Assert(t, qt.IsNil(tr.Expect(cmd.Process.Pid, 7, nil)))
	}
	more := commands[maxExpected:]
	qt.Check(t, qt.ErrorIs(tr.Expect(more[0].Process.Pid, 7, nil), ErrManyExpected))
	qt.Check(t, qt.IsNil(tr.Expect(more[1].Process.Pid, 8, nil)))
	commands[0].Process.Kill()
	commands[0].Wait()
	qt.Check(t, qt.IsNil(tr.Expect(more[0].Process.Pid, 7, nil)))
}

// loaderOf returns where a process has its dynamic linker.
func loaderOf(p *space) *codeMapping {
	for _, m := range p.newest.mappings {
		if m.file.loader != nil {
			return &m
		}
	}
	return nil
}

// isProbed reports whether a process has the kernel's breakpoint at an address of a mapped file.
func isProbed(t *testing.T, pid int, m *codeMapping, addr uint64) bool {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	qt.Assert(t, qt.IsNil(err))
	defer mem.Close()
	var b [1]byte
	_, err = mem.ReadAt(b[:], int64(addr+m.bias))
	qt.Assert(t, qt.IsNil(err))
	return b[0] == 0xcc // int3
}
