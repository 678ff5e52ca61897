package kernel_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/kernel"
)

// TestProgramsHaveIdentities: a process has another one after an exec, and none after its end.
func TestProgramsHaveIdentities(t *testing.T) {
	tracetest.NeedsRoot(t)
	k, err := kernel.Detect()
	qt.Assert(t, qt.IsNil(err))
	objs, err := k.Load(kernel.LoadOptions{OnlyListed: true})
	qt.Assert(t, qt.IsNil(err))
	defer objs.Close()
	own, err := objs.ExecID(os.Getpid())
	qt.Assert(t, qt.IsNil(err))

	cmd := exec.Command("sh", "-c", "read line; exec cat")
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	pid := cmd.Process.Pid
	shell, err := objs.AddProcess(pid, bpf.ProcessLate)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Not(qt.Equals(shell.ExecID, own)))
	same, err := objs.ExecID(pid)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(kernel.Program{PID: pid, ExecID: same}, shell))

	_, err = in.Write([]byte("go\nanswer"))
	qt.Assert(t, qt.IsNil(err))
	_, err = out.Read(make([]byte, 6)) // by cat
	qt.Assert(t, qt.IsNil(err))
	after, err := objs.ExecID(pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(after > shell.ExecID))
	cat := kernel.Program{PID: pid, ExecID: after}
	qt.Check(t, qt.IsFalse(objs.Runs(shell)))
	qt.Check(t, qt.IsTrue(objs.Runs(cat)))
	qt.Check(t, qt.IsFalse(objs.ChangeProcess(shell, 0, 5)), qt.Commentf("it is another program"))
	var p bpf.KernelProcess
	qt.Assert(t, qt.IsNil(objs.Processes.Lookup(uint32(pid), &p)))
	qt.Check(t, qt.Equals(p, bpf.KernelProcess{ExecId: after}))
	qt.Check(t, qt.IsTrue(objs.ChangeProcess(cat, bpf.ProcessFollow, 5)))
	qt.Assert(t, qt.IsNil(objs.Processes.Lookup(uint32(pid), &p)))
	qt.Check(t, qt.Equals(p, bpf.KernelProcess{ExecId: after, Flags: bpf.ProcessFollow, Space: 5}))

	in.Close()
	qt.Assert(t, qt.IsNil(cmd.Wait()))
	qt.Check(t, qt.IsFalse(objs.Runs(cat)))
	_, err = objs.AddProcess(pid, 0)
	qt.Check(t, qt.ErrorIs(err, unix.ESRCH))
	qt.Check(t, qt.IsNotNil(objs.Processes.Lookup(uint32(pid), &p)))
}
