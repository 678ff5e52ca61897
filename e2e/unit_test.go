package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/record"
	"ttmem/cmd/ttmem/service"
	tracerhost "ttmem/tracer/host"
)

var unitInstalled = flag.Bool("unit", false, "TestUnit installs ttmem's units in the systemd of this machine")

// systemctl runs it and returns its output.
func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("systemctl %s: %s", strings.Join(args, " "), out))
	return strings.TrimSpace(string(out))
}

// allowPerf does what docs/serve.md says where perf events or probes need CAP_SYS_ADMIN, and reports
// whether the unit has that capability then. Before, the service says so.
func allowPerf(t *testing.T) (admin bool) {
	t.Helper()
	const paranoid = "/proc/sys/kernel/perf_event_paranoid"
	text, err := os.ReadFile(paranoid)
	qt.Assert(t, qt.IsNil(err))
	if level, _ := strconv.Atoi(strings.TrimSpace(string(text))); level > 2 {
		qt.Check(t, qt.IsNotNil(exec.Command("systemctl", "start", "ttmem.service").Run()))
		said, err := exec.Command("journalctl", "-b", "-u", "ttmem.service", "-o", "cat").Output()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(string(said), "if kernel.perf_event_paranoid is over 2: set it to 2"))
		qt.Assert(t, qt.IsNil(os.WriteFile(paranoid, []byte("2"), 0o644)))
	}
	var name unix.Utsname
	qt.Assert(t, qt.IsNil(unix.Uname(&name)))
	var major, minor int
	_, err = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	qt.Assert(t, qt.IsNil(err))
	if major < 6 || major == 6 && minor < 10 {
		const dir = "/etc/systemd/system/ttmem.service.d"
		qt.Assert(t, qt.IsNil(os.MkdirAll(dir, 0o755)))
		added := "[Service]\nAmbientCapabilities=CAP_SYS_ADMIN\nCapabilityBoundingSet=CAP_SYS_ADMIN\n"
		qt.Assert(t, qt.IsNil(os.WriteFile(dir+"/override.conf", []byte(added), 0o644)))
		systemctl(t, "daemon-reload")
		return true
	}
	return false
}

// TestUnit runs the service as its units describe it, under systemd: with all their restrictions
// it traces processes of any user, from before and from then on, and answers ordinary users. The
// socket starts it, and after it was killed it has the same figures. `make vmtest` runs it, in
// machines of its own.
func TestUnit(t *testing.T) {
	if !*unitInstalled {
		t.Skip("no -unit")
	}
	env := setup(t, "0.81.1", "3.10")
	text, err := os.ReadFile(ttmem)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile("/usr/local/bin/ttmem", text, 0o755)))
	for _, name := range []string{"ttmem.socket", "ttmem.service"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(unitFile), name))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile("/etc/systemd/system/"+name, text, 0o644)))
	}
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := exec.Command("journalctl", "-b", "-n", "60", "--no-pager", "-o", "cat").CombinedOutput()
			t.Logf("%s", said)
		}
	})
	systemctl(t, "daemon-reload")
	systemctl(t, "enable", "--now", "ttmem.socket")

	late := startTarget(t, env, "n150", program(t, "hold.py"), "2", "512")
	late.expect(t, "holding")
	s := &server{socket: "/run/ttmem.sock"}
	admin := allowPerf(t)
	systemctl(t, "start", "ttmem.service") // until it is ready
	s.Client, err = service.Dial(s.socket)
	qt.Assert(t, qt.IsNil(err))
	p := startTarget(t, env, "n150", program(t, "hold.py"), "3", "512", "wait")
	p.expect(t, "opened")
	waitFor(t, "the process", func() bool { return s.knows(t, p.Process.Pid) })
	p.next()
	p.expect(t, "holding")
	held := func() bool {
		return s.allocated(t, p.Process.Pid) == 3*heldPerBank*12 && s.allocated(t, late.Process.Pid) == 2*heldPerBank*12
	}
	waitFor(t, "all buffers", held)
	snapshot := s.snapshot(t)
	qt.Check(t, qt.Equals(snapshot.LostEvents, 0))
	qt.Check(t, qt.IsTrue(snapshot.Stacks.Taken > 0))
	qt.Check(t, qt.HasLen(snapshot.Stacks.Incomplete, 0))

	failures, err := os.Stat(record.FailuresFolder)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(failures.Mode().Perm(), 0o700))

	main := func() int {
		pid, err := strconv.Atoi(systemctl(t, "show", "-P", "MainPID", "ttmem.service"))
		qt.Assert(t, qt.IsNil(err))
		return pid
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(main()) + "/status")
	qt.Assert(t, qt.IsNil(err))
	for _, restricted := range []string{"\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n"} {
		qt.Check(t, qt.StringContains(string(status), restricted))
	}
	qt.Check(t, qt.Not(qt.StringContains(string(status), "\nUid:\t0\t")))
	bound := tracerhost.Capabilities(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE,
		unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_LEASE)
	if admin {
		bound |= tracerhost.Capabilities(unix.CAP_SYS_ADMIN)
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			has, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(tracerhost.CapabilitySet(has)&^bound, 0))
		}
	}

	users := exec.Command("/usr/local/bin/ttmem", "dump", "--json") // by the default socket
	users.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := users.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.Not(qt.StringContains(string(out), "hold.py")))

	systemctl(t, "kill", "--signal=KILL", "--kill-whom=main", "ttmem.service")
	waitFor(t, "the service after it was killed", func() bool {
		client, err := service.Dial(s.socket)
		if err != nil {
			return false
		}
		s.Client = client
		again, err := s.Snapshot(context.Background())
		return err == nil && len(again.Processes) == 2 && held()
	})
	systemctl(t, "stop", "ttmem.socket", "ttmem.service")
	qt.Check(t, qt.Equals(systemctl(t, "show", "-P", "Result", "ttmem.service"), "success"))
}
