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

// Each mistake gets one line that says what to do, and a nonzero exit status.
func TestBadInput(t *testing.T) {
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
	sleeper := exec.Command("sleep", "60")
	qt.Assert(t, qt.IsNil(sleeper.Start()))
	defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(ttmem), 0o755)))

	// the version of the format follows the magic
	newer := []byte("\x93TTMEM\r\n\xff\xff\x00\x00")
	cut := write("cut.ttmem", []byte("\x93TTMEM\r\n\x01"))
	link := filepath.Join(dir, "link.ttmem")
	qt.Assert(t, qt.IsNil(os.Symlink(cut, link)))
	secret := write("secret.ttmem", nil)
	qt.Assert(t, qt.IsNil(os.Chmod(secret, 0)))
	for name, c := range map[string]struct {
		attr   *syscall.SysProcAttr
		args   []string
		says   string
		status int
	}{
		"no such process":         {nil, []string{"attach", "-p", "4194303"}, "no process 4194303", 1},
		"no process id":           {nil, []string{"attach", "-p", "0"}, "not a process id", 1},
		"not a number":            {nil, []string{"attach", "-p", "x"}, "not a process id", 1},
		"no duration":             {nil, []string{"attach", "--duration", "5"}, "5s for seconds", 1},
		"not permitted":           {nobody, []string{"attach", "-p", "1"}, "run it with sudo", 1},
		"run, not permitted":      {nobody, []string{"run", "--", "true"}, "run it with sudo", 125},
		"without the library":     {nil, []string{"attach", "-p", fmt.Sprint(sleeper.Process.Pid)}, "has no tt-metal library loaded", 1},
		"no command":              {nil, []string{"run"}, "ttmem run -- python", 125},
		"no such command":         {nil, []string{"run", "--", "no-such-command"}, "no such command", 127},
		"unknown flag":            {nil, []string{"run", "--frob"}, "--help", 125},
		"unknown command":         {nil, []string{"frob"}, "ttmem help", 1},
		"mistyped command":        {nil, []string{"atach"}, "did you mean ttmem attach?", 1},
		"a file, no command":      {nil, []string{cut}, "ttmem report " + cut, 1},
		"output in no folder":     {nil, []string{"run", "--no-record", "--events", "/no/such/folder/x", "--", "touch", filepath.Join(dir, "ran")}, "name a file that can be written", 125},
		"output is a folder":      {nil, []string{"run", "--no-record", "--events", dir, "--", "true"}, "name a file that can be written", 125},
		"negative duration":       {nil, []string{"attach", "--duration", "-1s"}, "must not be negative", 1},
		"record is gone":          {nil, []string{"record", "-o", "x", "--", "true"}, "did you mean ttmem run or ttmem attach or ttmem report?", 1},
		"record: twice the file":  {nil, []string{"run", "-o", "x", "--events", "x", "--", "true"}, "cannot both be x", 125},
		"record: and not":         {nil, []string{"run", "-o", "x", "--no-record", "--", "true"}, "leave out -o", 125},
		"record: it exists":       {nil, []string{"run", "-o", write("exists.ttmem", []byte("mine")), "--", "true"}, "name another", 125},
		"record: a folder":        {nil, []string{"run", "-o", dir, "--", "true"}, dir, 125},
		"record: in no folder":    {nil, []string{"run", "-o", "/no/such/folder/x", "--", "true"}, "name a file that can be written", 125},
		"record: one file kept":   {nil, []string{"run", "-o", filepath.Join(dir, "x"), "--max-size", "1MiB", "--keep", "1", "--", "true"}, "at least 2", 125},
		"record: a small file":    {nil, []string{"run", "-o", filepath.Join(dir, "x"), "--max-size", "10KiB", "--", "true"}, "64KiB at least", 125},
		"record: to no file":      {nil, []string{"run", "-o", "-", "--", "true"}, "name a file", 125},
		"record: no size":         {nil, []string{"run", "-o", filepath.Join(dir, "x"), "--max-size", "big", "--", "true"}, "500MiB", 125},
		"record: not permitted":   {nobody, []string{"run", "-o", filepath.Join(dir, "x"), "--", "true"}, "run it with sudo", 125},
		"report: no file":         {nil, []string{"report", "/no/such/file"}, "no such file", 1},
		"report: a folder":        {nil, []string{"report", dir}, dir, 1},
		"report: empty":           {nil, []string{"report", write("empty.ttmem", nil)}, "empty.ttmem", 1},
		"report: foreign":         {nil, []string{"report", "/bin/sh"}, "is not a ttmem recording", 1},
		"report: newer":           {nil, []string{"report", write("newer.ttmem", newer)}, "a newer ttmem", 1},
		"report: not readable":    {nobody, []string{"report", secret}, "permission denied", 1},
		"report: over its input":  {nil, []string{"report", cut, "--events", link}, "is the file that is read", 1},
		"report: cut short":       {nil, []string{"report", cut}, "nothing in it can be read", 1},
		"report: no service":      {nil, []string{"report", "--socket", filepath.Join(dir, "no.sock")}, "sudo ttmem serve", 1},
		"report: two files":       {nil, []string{"report", "a", "b"}, "one recording at a time", 1},
		"report: no JSON event":   {nil, []string{"report", write("other.json", []byte("{\"a\":1}\n"))}, "not an event record", 1},
		"serve: no socket":        {nil, []string{"serve", "--socket", write("file.sock", []byte("x"))}, "file.sock", 1},
		"serve: not permitted":    {nobody, []string{"serve"}, "run it with sudo", 1},
		"doctor: no file":         {nil, []string{"doctor", "/no/such/file"}, "no such file", 1},
		"doctor: a folder":        {nil, []string{"doctor", dir}, "not a file", 1},
		"doctor: another library": {nil, []string{"doctor", "/bin/sh"}, "not a tt-metal library", 1},
		"doctor: no ELF":          {nil, []string{"doctor", write("text", []byte("hello"))}, "ELF", 1},
		"doctor: truncated":       {nil, []string{"doctor", truncated}, truncated, 1},
		"doctor: hostile":         {nil, []string{"doctor", write("hostile.so", hostile)}, "hostile.so", 1},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, stderr, status := runTtmem(t, c.attr, c.args...)
			qt.Check(t, qt.Equals(status, c.status))
			qt.Check(t, qt.StringContains(stderr, c.says))
			qt.Check(t, qt.HasLen(lines(stderr), 1), qt.Commentf("%s", stderr))
			qt.Check(t, qt.IsTrue(time.Since(start) < 10*time.Second))
		})
	}
	_, err = os.Stat(filepath.Join(dir, "ran"))
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist), qt.Commentf("the command ran although it could not be traced as asked"))
}

// Without root the doctor first says so, and does not report features as missing that it
// could not try.
func TestDoctorWithoutRoot(t *testing.T) {
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Dir(ttmem), 0o755)))
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdout, stderr, status := runTtmem(t, nobody, "doctor")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.Equals(stderr, ""))
	qt.Check(t, qt.IsTrue(strings.HasPrefix(stdout, "Run without root")), qt.Commentf("%s", stdout))
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
	env := setup(t, "0.81.1", "3.10")
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	qt.Assert(t, qt.IsNil(os.Mkdir(disk, 0o755)))
	qt.Assert(t, qt.IsNil(syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k")))
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	file := filepath.Join(disk, "events.jsonl")

	p := env.Command(t.Context(), "n150", program(t, "loop.py"), "20000")
	cmd := exec.Command(ttmem, append([]string{"run", "--no-record", "--events", file, "--", p.Path}, p.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(p.Env, "n150", dir), dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Run()
	qt.Check(t, qt.Equals(cmd.ProcessState.ExitCode(), 125)) // ttmem failed, and the command did not
	qt.Check(t, qt.StringContains(stdout.String(), "done"))
	qt.Check(t, qt.Equals(strings.Count(stderr.String(), "no space left"), 1))
	events := readEvents(t, file) // every line is complete
	qt.Check(t, qt.IsTrue(len(events) > 100), qt.Commentf("%d events", len(events)))
}
