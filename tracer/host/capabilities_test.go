package host

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// threads returns the lines of /proc/PID/status with a name, without it, of all threads.
func threads(t *testing.T, pid int, name string) (values []string) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	list, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	for _, thread := range list {
		text, err := os.ReadFile(dir + "/" + thread.Name() + "/status")
		qt.Assert(t, qt.IsNil(err))
		_, value, _ := strings.Cut(string(text), "\n"+name+":\t")
		value, _, _ = strings.Cut(value, "\n")
		values = append(values, value)
	}
	return values
}

// onlySees checks that a process has the capability to see other users' processes, and can get no
// other.
func onlySees(t *testing.T, pid int) {
	t.Helper()
	for name, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000080000", "CapEff": "0000000000080000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1",
	} {
		for _, value := range threads(t, pid, name) {
			qt.Check(t, qt.Equals(value, want), qt.Commentf(name))
		}
	}
}

// Processes that this one starts for a task of their own have one capability of root's.
func TestChildrenGiveUpCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	one, err := startReader()
	qt.Assert(t, qt.IsNil(err))
	defer one.end()
	onlySees(t, one.child.Process.Pid)

	runtime.LockOSThread() // the debugger is a thread
	defer runtime.UnlockOSThread()
	debugged := exec.Command("sleep", "3600")
	debugged.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	qt.Assert(t, qt.IsNil(debugged.Start()))
	defer debugged.Wait()
	defer debugged.Process.Kill()
	keeper, err := KeepWhileDebugged(debugged.Process.Pid, nil)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Wait4(keeper, nil, 0, nil)
	defer unix.Kill(keeper, unix.SIGKILL)
	onlySees(t, keeper)
}

// Where only its owner can execute this program, root's children can still start it.
func TestChildrenOfAUsersProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const copied = "TTMEM_TEST_COPIED"
	if os.Getenv(copied) != "" {
		qt.Assert(t, qt.IsNil(KeepCapabilities(Capabilities(unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE))))
		one, err := startReader()
		qt.Assert(t, qt.IsNil(err))
		one.end()
		return
	}
	program, err := os.ReadFile("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	path := t.TempDir() + "/program"
	qt.Assert(t, qt.IsNil(os.WriteFile(path, program, 0o700)))
	qt.Assert(t, qt.IsNil(os.Chown(path, 65534, 65534)))
	process := exec.Command(path, "-test.run", "^TestChildrenOfAUsersProgram$")
	process.Env = append(os.Environ(), copied+"=1")
	out, err := process.CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// A trial has the given capabilities only, and this process keeps its own until it gives them up,
// at once if it likes.
func TestTryCapabilities(t *testing.T) {
	const given = "TTMEM_TEST_GIVEN_UP"
	if os.Getenv(given) != "" {
		TryCapabilities(0, func() {})
		qt.Assert(t, qt.IsNil(KeepCapabilities(Capabilities(unix.CAP_SYS_PTRACE))))
		onlySees(t, os.Getpid())
		qt.Check(t, qt.Equals(threads(t, os.Getpid(), "CapBnd")[0], "0000000000080000"))
		return
	}
	has, err := PermittedCapabilities()
	qt.Assert(t, qt.IsNil(err))
	if !has.Has(unix.CAP_DAC_OVERRIDE) {
		t.Skip("needs root")
	}
	file := t.TempDir() + "/file"
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0)))
	open := func() error {
		f, err := os.Open(file)
		if err == nil {
			f.Close()
		}
		return err
	}
	TryCapabilities(0, func() { err = open() })
	qt.Check(t, qt.ErrorIs(err, os.ErrPermission))
	qt.Check(t, qt.IsNil(open()))

	process := exec.Command(os.Args[0], "-test.run", "^TestTryCapabilities$")
	process.Env = append(os.Environ(), given+"=1")
	out, err := process.CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// The main thread does not end, and so it is none of those that give up capabilities to start a child.
func TestTheMainThreadKeepsItsCapabilities(t *testing.T) {
	main := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", os.Getpid()))
		qt.Assert(t, qt.IsNil(err))
		return strings.Join(statusOf(string(text), "CapEff"), "")
	}
	before := main()
	for range 2000 {
		qt.Assert(t, qt.IsNil(startChild(func() error { return nil })))
	}
	qt.Check(t, qt.Equals(main(), before))
}
