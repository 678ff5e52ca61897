package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	tracerhost "ttmem/tracer/host"
)

// unitFile is the systemd unit of the service.
const unitFile = "../docs/service/ttmem.service"

// unprivileged starts ttmem as the unit does: as a user who has the unit's capabilities, and
// can get no others.
func unprivileged(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	unit, err := os.ReadFile(unitFile)
	qt.Assert(t, qt.IsNil(err))
	names := regexp.MustCompile(`(?m)^AmbientCapabilities=(.*)$`).FindSubmatch(unit)
	qt.Assert(t, qt.IsNotNil(names))
	qt.Check(t, qt.IsTrue(bytes.Contains(unit, []byte("\nCapabilityBoundingSet="+string(names[1])+"\n"))))
	list := "-all"
	for name := range strings.FieldsSeq(string(names[1])) {
		list += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	return exec.Command("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
		"--inh-caps=" + list, "--ambient-caps=" + list, "--bounding-set=" + list, ttmem}, args...)...)
}

// The service needs no root, and no system call that its unit refuses: processes of any user are
// traced, also those that run already, and clients trust the socket, because root opened it.
func TestServiceWithoutRoot(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	late := startTarget(t, env, "n150", program(t, "hold.py"), "2", "512")
	late.expect(t, "holding")

	s := &server{socket: filepath.Join(t.TempDir(), "ttmem.sock")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	qt.Assert(t, qt.IsNil(err))
	defer l.Close()
	passed, err := l.File()
	qt.Assert(t, qt.IsNil(err))
	defer passed.Close()
	cmd := unprivileged(t, "serve")
	filtered := withUnitsCalls(t, cmd)
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`}, cmd.Args...)
	cmd.Path, err = exec.LookPath("sh")
	qt.Assert(t, qt.IsNil(err))
	cmd.ExtraFiles = []*os.File{passed}
	s.start(t, cmd)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(bytes.Contains(status, []byte("\nSeccomp:\t2\n")), filtered))

	p := startTarget(t, env, "n150", program(t, "hold.py"), "3", "512", "wait")
	p.expect(t, "opened")
	p.next()
	p.expect(t, "holding")
	waitFor(t, "all buffers", func() bool {
		return s.allocated(t, p.Process.Pid) == 3*heldPerBank*12 && s.allocated(t, late.Process.Pid) == 2*heldPerBank*12
	})
	snapshot := s.snapshot(t)
	for i := range snapshot.Processes { // other tests' processes may end before they are traced
		if one := &snapshot.Processes[i]; one.PID == p.Process.Pid || one.PID == late.Process.Pid {
			qt.Check(t, qt.Equals(one.Count(), 0))
		}
	}
	qt.Check(t, qt.IsTrue(snapshot.Stacks.Taken > 0))
	qt.Check(t, qt.HasLen(snapshot.Stacks.Incomplete, 0))

	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGTERM)))
	qt.Check(t, qt.IsNil(s.Wait()), qt.Commentf("%s", s.said()))
}

// The other commands that trace work with these capabilities as well, and without one of them
// say which.
func TestTracingWithoutRoot(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chown(dir, nobody, nobody)))
	in := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir, cmd.Env = dir, testEnviron(env.Command(context.Background(), "n150").Env, "n150", dir)
		return cmd
	}
	one := env.Command(context.Background(), "n150", program(t, "one.py"))
	out, err := in(unprivileged(t, append([]string{"run", "--no-record", "--json", "--", one.Path}, one.Args[1:]...)...)).Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	all := lines(string(out))
	var ran memory.Snapshot
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(all[len(all)-1]), &ran)))
	qt.Check(t, qt.Equals(ran.LostEvents, 0))
	qt.Check(t, qt.HasLen(ran.Processes, 1))

	p := startTarget(t, env, "n150", program(t, "hold.py"), "3", "512")
	p.expect(t, "holding")
	out, err = in(unprivileged(t, "dump", "--json")).Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(string(out), fmt.Sprintf(`"pid":%d,`, p.Process.Pid)))

	lacking := unprivileged(t, "attach")
	for i := range lacking.Args {
		lacking.Args[i] = strings.ReplaceAll(lacking.Args[i], ",+sys_ptrace", "")
	}
	out, err = in(lacking).CombinedOutput()
	qt.Check(t, qt.IsNotNil(err))
	qt.Check(t, qt.Matches(string(out), `ttmem: no ttmem service at \S+: start one with .sudo ttmem serve.; without one, tracing needs capabilities; `+
		`missing: CAP_SYS_PTRACE \(see the mappings and the memory of other users' processes\)\n`))
}

// capabilities returns those of a process, which are the same in each thread, permitted, effective
// and in the bounding set, without a way to others. A thread that starts a process with fewer has
// fewer itself until it ends.
func capabilities(t *testing.T, pid int) (set tracerhost.CapabilitySet) {
	t.Helper()
	waitFor(t, "all threads to have the same capabilities", func() (same bool) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		qt.Assert(t, qt.IsNil(err))
		same, set = len(threads) > 0, 0
		for _, status := range threads {
			text, err := os.ReadFile(status)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread has ended
			}
			qt.Assert(t, qt.IsNil(err))
			field := func(name string) (value uint64) {
				found := regexp.MustCompile("(?m)^" + name + `:\s+([0-9a-f]+)$`).FindSubmatch(text)
				qt.Assert(t, qt.HasLen(found, 2), qt.Commentf("%s", name))
				value, err := strconv.ParseUint(string(found[1]), 16, 64)
				qt.Assert(t, qt.IsNil(err))
				return value
			}
			has := tracerhost.CapabilitySet(field("CapPrm"))
			if set == 0 {
				set = has
			}
			for _, name := range []string{"CapPrm", "CapEff", "CapBnd"} {
				same = same && tracerhost.CapabilitySet(field(name)) == set
			}
			qt.Check(t, qt.Equals(field("CapInh")|field("CapAmb"), 0))
			qt.Check(t, qt.Equals(field("NoNewPrivs"), 1))
		}
		return same
	})
	return set
}

// tracingCapabilities are those that root keeps while it traces.
func tracingCapabilities(others ...int) tracerhost.CapabilitySet {
	set := tracerhost.Capabilities(append(others, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE,
		unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_LEASE)...)
	has, err := tracerhost.PermittedCapabilities()
	if err == nil && !has.Has(unix.CAP_SYS_RESOURCE) { // so that no limit can stand for them
		set |= tracerhost.Capabilities(unix.CAP_SYS_NICE, unix.CAP_IPC_LOCK)
	}
	return set
}

// A service of root gives up all capabilities but those that the unit gives it.
func TestRootGivesUpCapabilities(t *testing.T) {
	s := startServer(t)
	qt.Check(t, qt.Equals(capabilities(t, s.Process.Pid), tracingCapabilities()))
	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGTERM)))
	qt.Check(t, qt.IsNil(s.Wait()), qt.Commentf("%s", s.said()))
}

// The service's unit restricts the service: systemd's own score of its exposure is low.
func TestUnitIsRestricted(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unitFile).CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}
