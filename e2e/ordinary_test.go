package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
)

// An ordinaryUser is a user without root's rights. The rig may lie in root's home, which the capability lets the user
// read.
type ordinaryUser struct {
	env *rig.Env
	dir string // of the user
	// ttmem is a program that the user may execute.
	ttmem string
	// more are added to the environment.
	more []string
}

func newOrdinaryUser(t *testing.T, more ...string) *ordinaryUser {
	t.Helper()
	u := &ordinaryUser{env: setup(t, "0.81.1", "3.10"), dir: t.TempDir(), more: more}
	u.ttmem = filepath.Join(u.dir, "ttmem")
	qt.Assert(t, qt.IsNil(exec.Command("cp", ttmem, u.ttmem).Run()))
	for dir := u.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	}
	qt.Assert(t, qt.IsNil(os.Chown(u.dir, nobody, nobody)))
	return u
}

// command runs a program as the user.
func (u *ordinaryUser) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	python := u.env.Command(t.Context(), rig.N150)
	cmd := exec.Command(name, args...)
	cmd.Dir = u.dir
	cmd.Env = append(testEnviron(python.Env, rig.N150, u.dir), u.more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: []uintptr{unix.CAP_DAC_OVERRIDE},
		Setsid: true,
	}
	return cmd
}

// runs runs ttmem as the user.
func (u *ordinaryUser) runs(t *testing.T, args ...string) (said string, status int) {
	t.Helper()
	out, err := u.command(t, u.ttmem, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil {
		qt.Assert(t, qt.ErrorAs(err, &exit), qt.Commentf("%s", out))
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// reads returns the document of a command on a recording.
func reads[T any](t *testing.T, args ...string) (document T) {
	t.Helper()
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, append(args, "--json")...), &document)))
	return document
}

// checkRecording compares what a user recorded with what root does.
func (u *ordinaryUser) checkRecording(t *testing.T, name string) {
	t.Helper()
	own, theirs := filepath.Join(u.dir, name), recordedAsRoot(t)
	info, err := os.Stat(own)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Sys().(*syscall.Stat_t).Uid, nobody))
	type region struct {
		Region string
		Bytes  uint64
		Name   string
	}
	type peaks struct{ Peaks []region }
	qt.Check(t, qt.DeepEquals(reads[peaks](t, "peak", own), reads[peaks](t, "peak", theirs)))
	snapshot := reads[memory.Snapshot](t, "report", own)
	qt.Check(t, qt.HasLen(snapshot.Processes, 1))
	qt.Check(t, qt.Equals(snapshot.Processes[0].UID, nobody))
	type failures struct{ Failures []struct{ Name string } }
	qt.Check(t, qt.DeepEquals(reads[failures](t, "oom", own), reads[failures](t, "oom", theirs)))
}

// recordedAsRoot is the demo, recorded by root.
func recordedAsRoot(t *testing.T) string {
	t.Helper()
	file, _ := recordProgram(t, "0.81.1", "demo.py")
	return file
}

// TestRunAsOrdinaryUser: an ordinary user traces a command and own processes through the host's service, and gets what
// root gets, of own processes only. The command is the user's own child.
func TestRunAsOrdinaryUser(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+s.socket)
	s.discover(t, u.env)
	python := u.env.Command(t.Context(), rig.N150).Path
	other := &target{env: u.env, Cmd: u.command(t, "sh", "-c", `exec "$@"`, "sh", python, program(t, "hold.py"), "3", "512", "wait")}
	other.start(t)
	other.expect(t, "opened")
	other.next()
	other.expect(t, "holding")

	said, status := u.runs(t, "run", "-o", "one.ttmem", "--", "sh", "-c", `"$@"; id -u; exit 7`, "sh", python, program(t, "demo.py"))
	qt.Check(t, qt.Equals(status, 7), qt.Commentf("%s", said))
	qt.Check(t, qt.StringContains(said, "\n65534\n"))
	qt.Check(t, qt.StringContains(said, "1 allocation failed"))
	u.checkRecording(t, "one.ttmem")

	pid := strconv.Itoa(other.Process.Pid)
	for _, args := range [][]string{
		{"attach", "-p", pid, "-o", "late.ttmem", "--duration", "1s"}, {"dump", "-p", pid}, {"leaks", "-p", pid, "--duration", "1s"}, {"top", "-p", pid, "--once"},
	} {
		said, status := u.runs(t, args...)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, said))
	}
	buffers := reads[struct {
		Buffers []struct {
			PID int
		}
	}](t, "dump", filepath.Join(u.dir, "late.ttmem"), "--limit=0").Buffers
	qt.Check(t, qt.HasLen(buffers, 3))

	said, status = u.runs(t, "run", "--no-stacks", "--", "true")
	qt.Check(t, qt.Equals(status, 125))
	qt.Check(t, qt.Equals(said, "ttmem: the host's service traces, with its own choice of call stacks: leave out the flags about them, or run ttmem as root\n"))
}

// TestOwnersThroughAService: what an ordinary user records through the host's service has the owners of buffers at new peaks
// and, if the user wants them, at marks, as what root records does.
func TestOwnersThroughAService(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+s.socket)
	s.discover(t, u.env)
	file := filepath.Join(u.dir, "run.ttmem")
	python := u.env.Command(t.Context(), rig.N150).Path
	p := &target{env: u.env, Cmd: u.command(t, u.ttmem, "run", "-o", file, "--", python, program(t, "owners_told.py"))}
	p.start(t)
	t.Cleanup(func() { _ = unix.Kill(-p.Process.Pid, unix.SIGKILL) }) // the command too, which has the pipes
	p.expect(t, "ready")
	awaitOwners(t, heldBy(0), file)
	p.tell(t, "grow")
	p.tell(t, "grow") // more than an eighth
	awaitOwners(t, heldBy(2), file)

	late := filepath.Join(u.dir, "late.ttmem")
	processes := s.snapshot(t).Processes // other tests' too
	own := slices.IndexFunc(processes, func(p memory.Process) bool { return p.UID == nobody && p.Exit == nil })
	qt.Assert(t, qt.Not(qt.Equals(own, -1)))
	pid := processes[own].PID
	attach := &target{env: u.env, Cmd: u.command(t, u.ttmem, "attach", "-p", strconv.Itoa(pid), "-o", late, "--owners", "marks")}
	attach.start(t)
	awaitOwners(t, heldBy(2), late)
	p.tell(t, "grow")
	p.tell(t, "step")
	awaitOwners(t, heldBy(3), late, "--at", "step")
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
	qt.Check(t, qt.IsNil(attach.Wait()), qt.Commentf("%s", attach.stderr.String()))
	qt.Check(t, qt.DeepEquals(ownersIn(file, "--at", "step"), heldBy(3))) // another command of the user asked
}

// TestServiceEndsUnderARun: a command goes on, and what was recorded remains, if the service ends.
func TestServiceEndsUnderARun(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+s.socket)
	s.discover(t, u.env)
	p := &target{env: u.env, Cmd: u.command(t, u.ttmem, "run", "-o", "half.ttmem", "--", u.env.Command(t.Context(), rig.N150).Path, program(t, "hold.py"), "3", "512", "wait")}
	p.start(t)
	t.Cleanup(func() { _ = unix.Kill(-p.Process.Pid, unix.SIGKILL) }) // the command too, which has the pipes
	p.expect(t, "opened")
	p.next()
	p.expect(t, "holding")
	waitFor(t, "the service to have its buffers", func() bool {
		for _, one := range s.snapshot(t).Processes {
			if one.UID == nobody && len(one.Live) > 0 {
				return true
			}
		}
		return false
	})
	s.stop(t)
	p.stdin.Close()
	err := p.Wait()
	qt.Check(t, qt.Equals(p.ProcessState.ExitCode(), 125), qt.Commentf("%v", err)) // the command's was 0
	qt.Check(t, qt.StringContains(p.stderr.String(), "the ttmem service at "+s.socket+" ended, or dropped this command because it read too slowly; the command goes on, and is not traced\n"))
	snapshot := reads[memory.Snapshot](t, "report", filepath.Join(u.dir, "half.ttmem"))
	qt.Check(t, qt.HasLen(snapshot.Processes, 1))
}

// TestRunWithSudo: without a service, sudo starts a tracer for the command alone. sudo's configuration is of a mount
// namespace of the test.
func TestRunWithSudo(t *testing.T) {
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+filepath.Join(t.TempDir(), "none.sock"))
	u.more = append(u.more, "TMPDIR="+u.dir)
	python := u.env.Command(t.Context(), rig.N150).Path
	under := func(sudoers string, args ...string) (said string, status int) {
		t.Helper()
		rules := filepath.Join(t.TempDir(), "sudoers")
		qt.Assert(t, qt.IsNil(os.WriteFile(rules, []byte(sudoers), 0o440)))
		user := u.command(t, "")
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount --bind "$0" /etc/sudoers && exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "$@"`,
			rules, u.ttmem}, args...)...)
		cmd.Dir, cmd.Env = u.dir, user.Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil {
			qt.Assert(t, qt.ErrorAs(err, &exit), qt.Commentf("%s", out.String()))
		}
		return out.String(), cmd.ProcessState.ExitCode()
	}
	said, status := under("nobody ALL=(root) NOPASSWD: ALL\n", "run", "-o", "two.ttmem", "--", "sh", "-c", `"$@"; id -u; exit 7`, "sh", python, program(t, "demo.py"))
	qt.Check(t, qt.Equals(status, 7), qt.Commentf("%s", said))
	qt.Check(t, qt.StringContains(said, "\n65534\n"))
	qt.Check(t, qt.StringContains(said, "1 allocation failed"))
	u.checkRecording(t, "two.ttmem")
	waitFor(t, "the tracer to end with the command", func() bool {
		left, _ := filepath.Glob(filepath.Join(u.dir, "ttmem-*"))
		return len(left) == 0
	})

	said, status = under("nobody ALL=(root) ALL\n", "run", "--", "true")
	qt.Check(t, qt.Equals(status, 125))
	qt.Check(t, qt.Matches(said, "ttmem: tracing needs root, no ttmem service runs on this host, and with sudo none began: sudo: .*password.*\n"))
	qt.Check(t, qt.Equals(strings.Count(said, "\n"), 1))

	u.more = append(u.more, "PATH="+u.dir)
	said, status = u.runs(t, "run", "--", "/bin/true")
	qt.Check(t, qt.Equals(status, 125))
	qt.Check(t, qt.Equals(said, "ttmem: tracing needs root: no ttmem service runs on this host, and there is no sudo; an administrator starts one with `ttmem serve`\n"))
}

// TestNobodyMayTrace: where neither a service nor sudo can trace, a command and a view say the same.
func TestNobodyMayTrace(t *testing.T) {
	u := newOrdinaryUser(t)
	none := filepath.Join(u.dir, "none.sock")
	u.more = append(u.more, "TTMEM_SOCKET="+none)
	const says = "ttmem: no ttmem service at %s: start one with `sudo ttmem serve --socket %s`; without one, tracing needs root: run it with sudo"
	for command, want := range map[string]string{"run -- true": says + "\n", "dump": says + ", or give a recording\n"} {
		out, err := u.command(t, "setpriv", append([]string{"--no-new-privs", u.ttmem}, strings.Fields(command)...)...).CombinedOutput()
		qt.Check(t, qt.ErrorMatches(err, "exit status (1|125)"))
		qt.Check(t, qt.Equals(string(out), fmt.Sprintf(want, none, none)))
	}
}
