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

// A process that executes programs after ProbeLoader is published at once, and no probe is placed on
// their dynamic linker.
func TestLoaderIsProbedAhead(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read go; exec sleep 1000")
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pid := cmd.Process.Pid
	tr := knowing(t, nil)
	tr.ProbeLoader(pid)
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
