package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// runTtmem runs ttmem and returns its output and exit status.
func runTtmem(t *testing.T, attr *syscall.SysProcAttr, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ttmem, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) } // prints where it waits
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("ttmem %s does not end:\n%s", strings.Join(args, " "), errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Each mistake gets one line that says what to do, and a nonzero exit status. Mistakes that need
// neither root nor a library are in TestMistakes of cmd/ttmem.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o644)))
		return path
	}
	env := setup(t, "0.81.1", "3.10")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	truncated := write("truncated.so", library[:len(library)/2])
	hostile := append([]byte(nil), library[:1<<16]...)
	for i := 40; i < 64; i++ { // offsets and counts in the headers
		hostile[i] = 0xff
	}
	sleeper := exec.Command("sleep", "3600")
	qt.Assert(t, qt.IsNil(sleeper.Start()))
	defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
	socket := write("file.sock", []byte("x"))
	for name, c := range map[string]struct {
		args   []string
		says   string
		status int
	}{
		"no such process":         {[]string{"attach", "-p", "4194303"}, "`pgrep -af python` finds them", 1},
		"a thread":                {[]string{"attach", "-p", fmt.Sprint(thread(t))}, fmt.Sprintf("give -p %d", os.Getpid()), 1},
		"without the library":     {[]string{"attach", "-p", fmt.Sprint(sleeper.Process.Pid)}, "attach once it has imported ttnn", 1},
		"no such command":         {[]string{"run", "--", "no-such-command"}, "no such command", 127},
		"output in no folder":     {[]string{"run", "-o", "/no/such/folder/x", "--", "touch", filepath.Join(dir, "ran")}, "name a file that can be written", 125},
		"output is a folder":      {[]string{"run", "-o", dir, "--", "true"}, "name a file in it", 125},
		"recording exists":        {[]string{"run", "-o", write("exists.ttmem", []byte("mine")), "--", "true"}, "name another", 125},
		"recording is a folder":   {[]string{"run", "-o", dir, "--", "true"}, "name a file in it", 125},
		"recording in no folder":  {[]string{"run", "-o", "/no/such/folder/x", "--", "true"}, "name a file that can be written", 125},
		"serve: no socket":        {[]string{"serve", "--socket", socket}, "remove it, or give another path", 1},
		"serve: a folder":         {[]string{"serve", "--socket", dir}, "give the path of a socket in it", 1},
		"serve: in no folder":     {[]string{"serve", "--socket", "/no/such/folder/x"}, "give a path in a folder", 1},
		"serve: no address":       {[]string{"serve", "--socket", filepath.Join(dir, "s"), "--http", "nonsense"}, "such as 127.0.0.1:9464", 1},
		"serve: remote":           {[]string{"serve", "--socket", filepath.Join(dir, "s"), "--http", ":0"}, "give --allow-remote and --token-file", 1},
		"serve: token for all":    {[]string{"serve", "--socket", filepath.Join(dir, "s"), "--http", "127.0.0.1:0", "--token-file", write("token", []byte("0123456789abcdef"))}, "chmod 600", 1},
		"serve: others' folder":   {[]string{"serve", "--socket", filepath.Join(dir, "s"), "--crash-dir", dir}, "other users can use this folder", 1},
		"doctor: no file":         {[]string{"doctor", "/no/such/file"}, "no such file", 1},
		"doctor: a folder":        {[]string{"doctor", dir}, "not a file", 1},
		"doctor: another library": {[]string{"doctor", "/bin/sh"}, "not a tt-metal library", 1},
		"doctor: no ELF":          {[]string{"doctor", write("text", []byte("hello"))}, "ELF", 1},
		"doctor: truncated":       {[]string{"doctor", truncated}, truncated, 1},
		"doctor: hostile":         {[]string{"doctor", write("hostile.so", hostile)}, "hostile.so", 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := runTtmem(t, nil, c.args...)
			qt.Check(t, qt.Equals(status, c.status))
			qt.Check(t, qt.StringContains(stderr, c.says))
			qt.Check(t, qt.HasLen(lines(stderr), 1), qt.Commentf("%s", stderr))
		})
	}
	_, err = os.Stat(filepath.Join(dir, "ran"))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist), qt.Commentf("the command ran although it could not be traced as asked"))
}

// thread is the id of a thread of this process that is not its first.
func thread(t *testing.T) (tid int) {
	list, err := os.ReadDir("/proc/self/task")
	qt.Assert(t, qt.IsNil(err))
	_, err = fmt.Sscan(list[len(list)-1].Name(), &tid)
	qt.Assert(t, qt.IsNil(err))
	return tid
}

// Without root, doctor says so first. Features that it could not try are not reported as missing.
func TestDoctorWithoutRoot(t *testing.T) {
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(ttmem), 0o755)))
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdout, stderr, status := runTtmem(t, nobody, "doctor")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.Equals(stderr, ""))
	qt.Check(t, qt.IsTrue(strings.HasPrefix(stdout, "Without root, ")), qt.Commentf("%s", stdout))
	qt.Check(t, qt.StringContains(stdout, "?        BPF programs            not tried: needs root"))
	qt.Check(t, qt.IsFalse(strings.Contains(stdout, "not permitted")), qt.Commentf("%s", stdout))
}

// A recording of all users' processes can be read by its owner only, and says if no process
// was seen.
func TestRecordHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "host.ttmem")
	_, stderr, status := runTtmem(t, nil, "attach", "-o", file, "--duration", "100ms")
	qt.Check(t, qt.Equals(status, 0))
	if !strings.Contains(stderr, ": recorded ") { // other programs may run on this host
		qt.Check(t, qt.StringContains(stderr, "no process that uses tt-metal was seen"))
	}
	info, err := os.Stat(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
}

// On a host that lacks what ttmem needs, it prints one line and does not run the command
// untraced.
func TestUnfitHosts(t *testing.T) {
	for name, c := range map[string]struct {
		under []string
		says  string
	}{
		"no BTF": {
			[]string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /sys/kernel/btf && exec "$0" "$@"`},
			"CONFIG_DEBUG_INFO_BTF",
		},
		"another PID namespace": {
			[]string{"unshare", "--pid", "--fork", "--mount-proc"},
			"--pid=host",
		},
		"no capabilities": {
			[]string{"setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon"},
			"CAP_BPF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(c.under, ttmem, "run", "--", "echo", "ran")
			cmd := exec.Command(args[0], args[1:]...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			cmd.Run()
			qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), 125))
			qt.Check(t, qt.StringContains(errs.String(), c.says))
			qt.Check(t, qt.HasLen(lines(errs.String()), 1), qt.Commentf("%s", errs.String()))
			qt.Check(t, qt.Equals(out.String(), ""))
		})
	}
}

// If a library lacks a symbol, the report names what is not seen, and the rest works.
func TestSymbolMissing(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	changed := bytes.ReplaceAll(library, []byte("track_allocate_cb"), []byte("track_allocate_xx"))
	path := filepath.Join(t.TempDir(), "changed.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, changed, 0o644)))
	stdout, _, status := runTtmem(t, nil, "doctor", path)
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(stdout, "MISSING   cb_allocate"))
	qt.Check(t, qt.StringContains(stdout, "circular buffers are not seen"))
}

// The command's exit status, signals and output are passed through.
func TestExits(t *testing.T) {
	t.Parallel()
	stdout, _, status := runTtmem(t, nil, "run", "--", "sh", "-c", "echo out; exit 7")
	qt.Check(t, qt.Equals(stdout, "out\n"))
	qt.Check(t, qt.Equals(status, 7))
	_, _, status = runTtmem(t, nil, "run", "--", "sh", "-c", "kill -TERM $$")
	qt.Check(t, qt.Equals(status, 128+15))

	cmd := exec.Command(ttmem, "run", "--", "sh", "-c", `trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	ready := make([]byte, 6)
	_, err = out.Read(ready)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Process.Signal(syscall.SIGTERM)))
	cmd.Wait()
	qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), 9))
}

// When the disk fills, the events written so far are intact, there is one warning, and the
// command ends as without ttmem.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	qt.Assert(t, qt.IsNil(os.Mkdir(disk, 0o755)))
	// less than the recording, and more than the largest block, which ttmem writes after it was late
	qt.Assert(t, qt.IsNil(syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=160k")))
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	file := filepath.Join(disk, "events.ttmem")

	p := env.Command(t.Context(), "n150", program(t, "loop.py"), "60000")
	cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--", p.Path}, p.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(p.Env, "n150", dir), dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Run()
	qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), 125)) // ttmem failed, and the command did not
	qt.Check(t, qt.StringContains(stdout.String(), "done"))
	qt.Check(t, qt.Equals(strings.Count(stderr.String(), "no space left"), 1))
	events := readEvents(t, file)
	qt.Check(t, qt.IsTrue(len(events) > 100), qt.Commentf("%d events", len(events)))
	out, errs, status := runTtmem(t, nil, "report", file, "--json")
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, `"buffers"`))
}
