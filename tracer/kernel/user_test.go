package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// The processes of TestUserOfANamespace: one of a user, and one in a namespace that it makes.
const (
	stageVariable = "TTMEM_TEST_STAGE"
	stageOwner    = "owner"
	stageInside   = "inside"
)

// A process in a user's namespace counts as that user, whatever id it has there and on the host. In a
// namespace of root, all processes count as one user.
func TestUserOfANamespace(t *testing.T) {
	switch os.Getenv(stageVariable) {
	case stageOwner:
		inside := stage(stageInside)
		inside.SysProcAttr.Cloneflags, inside.SysProcAttr.AmbientCaps = syscall.CLONE_NEWUSER, []uintptr{unix.CAP_SETUID}
		inside.Stdin, inside.Stdout = os.Stdin, os.Stdout
		if err := inside.Run(); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	case stageInside:
		in := bufio.NewReader(os.Stdin)
		fmt.Println(os.Getpid())
		_, _ = in.ReadString('\n') // its ids are mapped
		err := syscall.Setuid(0)
		probedHere()
		fmt.Println("hit", err)
		_, _ = in.ReadString('\n')
		os.Exit(0)
	}

	tracetest.NeedsRoot(t)
	k, err := Detect()
	qt.Assert(t, qt.IsNil(err))
	objs, err := k.Load(LoadOptions{})
	qt.Assert(t, qt.IsNil(err))
	defer objs.Close()
	offset, err := fileOffset(reflect.ValueOf(probedHere).Pointer())
	qt.Assert(t, qt.IsNil(err))
	probes, err := k.Uprobes.Place("/proc/self/exe", objs.OnProbe, []uint64{offset}, []uint64{uint64(bpf.KernelProbePROBE_DEVICE_READY)}, 0)
	qt.Assert(t, qt.IsNil(err))
	defer probes.Close()

	const owner, subordinate = 70000, 170001
	for name, c := range map[string]struct {
		owner int
		user  func(uint64) bool
	}{
		"user": {owner, func(user uint64) bool { return user == owner }},
		"root": {0, func(user uint64) bool { return user>>32 == uint64(bpf.KernelUserKindNAMESPACE_OF_ROOT) }},
	} {
		t.Run(name, func(t *testing.T) {
			process := stage(stageOwner)
			process.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.owner), Gid: uint32(c.owner)}
			in, err := process.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			out, err := process.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(process.Start()))
			t.Cleanup(func() {
				in.Close()
				_ = process.Wait()
			})
			var pid int
			_, err = fmt.Fscanln(out, &pid)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(os.WriteFile(fmt.Sprintf("/proc/%d/uid_map", pid), fmt.Appendf(nil, "0 %d 1", subordinate), 0)))
			_, err = io.WriteString(in, "\n")
			qt.Assert(t, qt.IsNil(err))
			line, err := bufio.NewReader(out).ReadString('\n')
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(line, "hit <nil>\n"))
			var p bpf.KernelProcess
			qt.Assert(t, qt.IsNil(objs.Processes.Lookup(uint32(pid), &p)))
			qt.Check(t, qt.IsTrue(c.user(p.User)), qt.Commentf("%#x", p.User))
		})
	}
}

// stage returns the command of a process that runs this test.
func stage(name string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", "-test.run=^TestUserOfANamespace$")
	c.Env = append(os.Environ(), stageVariable+"="+name)
	c.Dir, c.SysProcAttr = "/", new(syscall.SysProcAttr)
	return c
}

// probedHere is a function to place a probe on.
//
//go:noinline
func probedHere() {}

// fileOffset converts an address in this program's code to an offset in its file.
func fileOffset(address uintptr) (uint64, error) {
	var proc host.Proc
	code, err := proc.CodeMappings(os.Getpid())
	if err != nil {
		return 0, err
	}
	for _, m := range code {
		if uint64(address) >= m.Start && uint64(address) < m.End {
			return uint64(address) - m.Start + m.Offset, nil
		}
	}
	return 0, fmt.Errorf("no code is mapped at %#x", address)
}
