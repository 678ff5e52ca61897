package hostile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
)

// rootOutput is a command that writes a file.
type rootOutput struct{ name, command, plant string }

// outputs are the commands that write a file, as root may run them in a folder of another user.
// OUT is the file, FILE a recording. The plant is the symlink that the user has put into the
// folder: at the path, on the way to it, or at one that ttmem derives from it.
var outputs = []rootOutput{
	{"pprof", "export FILE --to pprof -o OUT", "OUT"},
	{"folded stacks", "export FILE --to folded -o OUT", "OUT"},
	{"database", "export FILE --to sqlite -o OUT", "OUT"},
	{"visualizer report", "export FILE --to visualizer -o OUT", "OUT"},
	{"page", "html FILE -o OUT", "OUT"},
	{"run -o", "run -o OUT -- true", "OUT"},
	{"attach -o", "attach -o OUT --duration 100ms", "OUT"},
	{"attach -o, rotated", "attach -o OUT --max-size 64KiB --keep 2 --duration 100ms", "OUT.1"},
	{"folded stacks in a folder", "export FILE --to folded -o OUT/new", "OUT"},
	{"run -o in a folder", "run -o OUT/new -- true", "OUT"},
	{"attach -o in a folder", "attach -o OUT/new --duration 100ms", "OUT"},
	{"serve --crash-dir in a folder", "serve --socket OUT.sock --crash-dir OUT/new", "OUT"},
	{"serve --crash-dir", "serve --socket OUT.sock --crash-dir OUT", "OUT"},
	{"serve --socket in a folder", "serve --socket OUT/new", "OUT"},
	{"serve --socket", "serve --socket OUT", "OUT"},
	{"serve's lock", "serve --socket OUT", "OUT.lock"},
	{"serve -o", "serve --socket OUT.sock -o OUT", "OUT"},
	{"serve -o, rotated", "serve --socket OUT.sock -o OUT --max-size 64KiB", "OUT.1"},
}

// asRoot runs a command of root, which is interrupted after a time.
func asRoot(command string, limit time.Duration) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ttmem, strings.Fields(command)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay, cmd.Dir = endLimit*patience, public
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// isTracer reports whether an output is that of a command that runs until it is interrupted.
func (o *rootOutput) isTracer() bool {
	return strings.HasPrefix(o.command, "serve") || strings.HasPrefix(o.command, "attach")
}

// TestOutputs: no command of root writes where a symlink of another user leads, whether that
// is a file that exists or one that does not.
func TestOutputs(t *testing.T) {
	u := newUser(t, 7)
	recording := filepath.Join(public, "outputs.ttmem")
	writeRecording(t, recording, "plain", 0)
	guarded := filepath.Join(public, "root")
	qt.Assert(t, qt.IsNil(os.Mkdir(guarded, 0o700)))
	existing, missing := filepath.Join(guarded, "shadow"), filepath.Join(guarded, "new")
	for _, o := range outputs {
		if strings.Contains(o.command, "--crash-dir OUT/") && !*tracetest.Long {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			var failures []string
			for _, to := range []string{existing, missing} {
				if to == missing && !*tracetest.Long {
					continue
				}
				if strings.Contains(o.command, "OUT/") {
					to = filepath.Dir(to)
				}
				qt.Assert(t, qt.IsNil(os.WriteFile(existing, []byte("root only\n"), 0o600)))
				before := listing(guarded)
				out := filepath.Join(u.home, "out")
				qt.Assert(t, qt.IsNil(u.command("ln", "-s", to, strings.ReplaceAll(o.plant, "OUT", out)).Run()))
				said, _ := asRoot(strings.NewReplacer("FILE", recording, "OUT", out).Replace(o.command), 1500*time.Millisecond)
				if after := listing(guarded); after != before {
					failures = append(failures, fmt.Sprintf("root's folder changed from\n%s\nto\n%s\n%.300s", before, after, said))
				}
				os.Remove(missing)
				for _, name := range []string{"", ".1", ".lock", ".sock", ".sock.lock"} {
					os.Remove(out + name)
				}
			}
			report(t, "symlink at "+o.name, failures)
		})
	}
}

// TestExchangedFolders: no command of root writes to where a symlink leads that another user exchanges with
// the folder of the output, again and again.
func TestExchangedFolders(t *testing.T) {
	u := newUser(t, 9)
	recording := filepath.Join(public, "exchanged.ttmem")
	writeRecording(t, recording, "plain", 0)
	guarded := filepath.Join(public, "exchanged")
	folder, link := filepath.Join(u.home, "folder"), filepath.Join(u.home, "link")
	qt.Assert(t, qt.IsNil(os.Mkdir(guarded, 0o700)))
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(guarded, "out"), []byte("root only\n"), 0o600)))
	before := listing(guarded)
	qt.Assert(t, qt.IsNil(u.command("mkdir", folder).Run()))
	qt.Assert(t, qt.IsNil(u.command("ln", "-s", guarded, link).Run()))
	var stop atomic.Bool
	var exchange sync.Mutex // held where this test itself looks into the folder, so that it does not follow the symlink
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !stop.Load() {
			exchange.Lock()
			_ = unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			exchange.Unlock()
			time.Sleep(100 * time.Microsecond)
		}
	}()
	defer func() { stop.Store(true); <-stopped }()
	tries := 3
	if *tracetest.Long {
		tries = 50
	}
	for _, o := range outputs {
		if strings.Contains(o.command, "OUT/") || strings.HasSuffix(o.plant, ".lock") || o.isTracer() && !*tracetest.Long && !strings.Contains(o.command, "-o OUT --max-size") {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			made := 0
			for range tries {
				command := strings.NewReplacer("FILE", recording, "OUT", filepath.Join(folder, "out")).Replace(o.command)
				serves, limit := strings.HasPrefix(command, "serve"), 20*time.Second
				if serves {
					limit = 1500 * time.Millisecond
				}
				said, err := asRoot(command, limit)
				if err == nil || serves && strings.Contains(said, "listening at") {
					made++
				} else if !strings.Contains(said, "symbolic link") && !strings.Contains(said, "not a directory") && !serves {
					t.Errorf("%s: %v: %.300s", command, err, said)
				}
				if after := listing(guarded); after != before {
					t.Fatalf("%s: root's folder changed from\n%s\nto\n%s\n%.300s", command, before, after, said)
				}
				exchange.Lock()
				for _, in := range []string{folder, link} {
					if info, err := os.Lstat(in); err == nil && info.IsDir() {
						left, _ := filepath.Glob(in + "/*")
						for _, path := range left {
							_ = os.RemoveAll(path)
						}
					}
				}
				exchange.Unlock()
			}
			t.Logf("%d of %d were written", made, tries)
		})
	}
}

// TestOutputsOfOthers: root writes into no file, FIFO or folder that another user made, whatever its mode.
func TestOutputsOfOthers(t *testing.T) {
	u := newUser(t, 10)
	recording := filepath.Join(public, "others.ttmem")
	writeRecording(t, recording, "plain", 0)
	out := filepath.Join(u.home, "out")
	for _, o := range outputs {
		if strings.Contains(o.command, "OUT/") || o.plant != "OUT" || o.isTracer() && !*tracetest.Long && !strings.Contains(o.command, "-o OUT --max-size") {
			continue
		}
		for kind, plant := range map[string]string{"file": "echo theirs >%s; chmod 666 %[1]s", "FIFO": "mkfifo -m 666 %s", "folder": "mkdir -m 777 %s"} {
			if isFolder := strings.Contains(o.command, "visualizer") || strings.Contains(o.command, "crash-dir"); isFolder != (kind == "folder") {
				continue
			}
			t.Run(o.name+", "+kind, func(t *testing.T) {
				qt.Assert(t, qt.IsNil(u.command("sh", "-c", fmt.Sprintf(plant, out)).Run()))
				before := listing(u.home)
				said, err := asRoot(strings.NewReplacer("FILE", recording, "OUT.sock", filepath.Join(public, "own.sock"), "OUT", out).Replace(o.command), 20*time.Second)
				qt.Check(t, qt.IsNotNil(err))
				qt.Check(t, qt.Matches(said, `(?s).*(belongs to another user|exists; name another|other users can use this folder|is not a socket|is not a ttmem recording).*`))
				qt.Check(t, qt.Equals(listing(u.home), before))
				qt.Check(t, qt.IsNil(os.RemoveAll(out)))
			})
		}
	}
}

// TestPrivateRecordings: what is made of a recording that only root may read is root's alone, even where an
// older output was for all.
func TestPrivateRecordings(t *testing.T) {
	dir, err := os.MkdirTemp(public, "private-")
	qt.Assert(t, qt.IsNil(err))
	recording := filepath.Join(dir, "private.ttmem")
	writeRecording(t, recording, "plain", 0)
	for _, o := range outputs {
		if !strings.Contains(o.command, "FILE") || strings.Contains(o.command, "OUT/") {
			continue
		}
		for mode, want := range map[os.FileMode]os.FileMode{0o600: 0o600, 0o644: 0o644} {
			t.Run(fmt.Sprintf("%s of %#o", o.name, mode), func(t *testing.T) {
				out := filepath.Join(dir, "out")
				isFolder := strings.Contains(o.command, "visualizer")
				if !isFolder {
					qt.Assert(t, qt.IsNil(os.WriteFile(out, nil, 0o666)))
					qt.Assert(t, qt.IsNil(os.Chmod(out, 0o666)))
				}
				qt.Assert(t, qt.IsNil(os.Chmod(recording, mode)))
				said, err := asRoot(strings.NewReplacer("FILE", recording, "OUT", out).Replace(o.command), time.Minute)
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", said))
				info, err := os.Lstat(out)
				qt.Assert(t, qt.IsNil(err))
				const others = 0o077
				qt.Check(t, qt.Equals(info.Mode().Perm()&others&^0o011, want&others))
				qt.Check(t, qt.IsNil(os.RemoveAll(out)))
			})
		}
	}
}

// TestPrivateSources: an export of root has no source file of a folder that only root can enter, though
// every user could read the file itself, and says so.
func TestPrivateSources(t *testing.T) {
	dir, err := os.MkdirTemp(public, "sources-")
	qt.Assert(t, qt.IsNil(err)) // mode 0700
	file := filepath.Join(dir, "model.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte("password = "+secret+"\n"), 0o644)))
	link := filepath.Join(public, "link.py")
	qt.Assert(t, qt.IsNil(os.Symlink(file, link)))
	old := time.Unix(1e8, 0) // before the recording
	qt.Assert(t, qt.IsNil(os.Chtimes(file, old, old)))
	paths := []string{file, link, dir + "/../" + filepath.Base(dir) + "/model.py"}
	for i, path := range append(paths, file) {
		private := i < len(paths)
		if !private {
			qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
		}
		recording := filepath.Join(public, "sources.ttmem")
		_ = os.Remove(recording)
		writeRecordingIn(t, recording, "", strings.TrimSuffix(strings.TrimPrefix(path, "/"), ".py"), 0)
		out := filepath.Join(public, "sources.report")
		said, err := asRoot("export "+recording+" --to visualizer -o "+out, time.Minute)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", said))
		qt.Check(t, qt.Equals(strings.Contains(said, "that not every user may read"), private), qt.Commentf("%s", said))
		qt.Check(t, qt.Equals(exec.Command("grep", "-rqa", secret, out).Run() == nil, !private))
		qt.Check(t, qt.IsNil(os.RemoveAll(out)))
	}
}

// TestTokenFiles: a service takes no token from a file that others can read or replace.
func TestTokenFiles(t *testing.T) {
	u := newUser(t, 11)
	mine := filepath.Join(public, "token")
	theirs := filepath.Join(u.home, "token")
	const token = "0123456789abcdef0123456789abcdef\n"
	for name, make := range map[string]string{
		"of another user": "printf %s '%s' >%s && chown %d %[3]s && chmod 600 %[3]s", "for the group": "printf %s '%s' >%s && chmod 640 %[3]s",
		"for all": "printf %s '%s' >%s && chmod 604 %[3]s", "that others write": "printf %s '%s' >%s && chmod 602 %[3]s", "that is a FIFO": "mkfifo %[3]s",
		"that is a device": "ln -s /dev/zero %[3]s",
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{mine, theirs} {
				out, err := exec.Command("sh", "-c", fmt.Sprintf(make, "%s", token, path, u.uid)).CombinedOutput()
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
				said, err := asRoot("serve --socket "+filepath.Join(public, "token.sock")+" --http 127.0.0.1:0 --token-file "+path, 20*time.Second)
				qt.Check(t, qt.IsNotNil(err))
				qt.Check(t, qt.StringContains(said, "--token-file "+path))
				qt.Check(t, qt.IsFalse(strings.Contains(said, "0123456789")))
				qt.Check(t, qt.IsNil(os.Remove(path)))
			}
		})
	}
}
