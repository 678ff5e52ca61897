package stack

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
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
	qt.Assert(t, qt.IsNil(tr.Expect(pid, os.Getuid())))
	qt.Check(t, qt.IsTrue(tr.Expects(pid)))
	qt.Check(t, qt.IsNil(tr.Expect(pid, os.Getuid()))) // once is enough
	qt.Check(t, qt.HasLen(tr.ahead, 1))
	_, err = io.WriteString(in, "\n")
	qt.Assert(t, qt.IsNil(err))
	known := tracetest.Eventually(time.Minute, func() bool {
		know(tr, pid)
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		p := tr.byPID[pid]
		return string(name) == "sleep\n" && p != nil && p.newest != nil && loaderOf(p) != nil
	})
	qt.Assert(t, qt.IsTrue(known))
	p := tr.byPID[pid]
	qt.Check(t, qt.IsNil(p.loader.probe))
	m := loaderOf(p)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	qt.Assert(t, qt.IsNil(err))
	defer mem.Close()
	var b [1]byte
	_, err = mem.ReadAt(b[:], int64(m.file.loader.debugState.Addr+m.bias))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(b[0], 0xcc)) // int3
	cmd.Process.Kill()
	cmd.Wait()
	tr.Forget(p.program)
	tr.Settle()
	qt.Check(t, qt.IsFalse(tr.Expects(pid)))
	qt.Check(t, qt.Equals(tr.expected.Of(os.Getuid()), 0))
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
		qt.Assert(t, qt.IsNil(tr.Expect(cmd.Process.Pid, 7)))
	}
	more := commands[maxExpected:]
	qt.Check(t, qt.ErrorIs(tr.Expect(more[0].Process.Pid, 7), ErrManyExpected))
	qt.Check(t, qt.IsNil(tr.Expect(more[1].Process.Pid, 8)))
	commands[0].Process.Kill()
	commands[0].Wait()
	qt.Check(t, qt.IsNil(tr.Expect(more[0].Process.Pid, 7)))
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
