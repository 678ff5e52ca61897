package hostile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// rootOutput is a command that writes a file.
type rootOutput struct{ name, command, plant string }

// outputs are the commands that write a file, as root may run them in a folder of another user.
// OUT is the file, FILE a recording. The plant is the symlink that the user has put into the
// folder: at the path, on the way to it, or at one that ttmem derives from it.
var outputs = []rootOutput{
	{"flame graph", "export FILE --to flamegraph -o OUT", "OUT"},
	{"pprof", "export FILE --to pprof -o OUT", "OUT"},
	{"folded stacks", "export FILE --to folded -o OUT", "OUT"},
	{"run -o", "run -o OUT -- true", "OUT"},
	{"attach -o", "attach -o OUT --duration 100ms", "OUT"},
	{"attach -o, rotated", "attach -o OUT --max-size 64KiB --keep 2 --duration 100ms", "OUT.1"},
	{"folded stacks in a folder", "export FILE --to folded -o OUT/new", "OUT"},
	{"run -o in a folder", "run -o OUT/new -- true", "OUT"},
	{"attach -o in a folder", "attach -o OUT/new --duration 100ms", "OUT"},
	{"serve --socket in a folder", "serve --socket OUT/new", "OUT"},
	{"serve --socket", "serve --socket OUT", "OUT"},
	{"serve's lock", "serve --socket OUT", "OUT.lock"},
	{"serve -o", "serve --socket OUT.sock -o OUT", "OUT"},
	{"serve -o, rotated", "serve --socket OUT.sock -o OUT --max-size 64KiB", "OUT.1"},
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
				ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond*patience)
				cmd := exec.CommandContext(ctx, ttmem, strings.Fields(strings.NewReplacer("FILE", recording, "OUT", out).Replace(o.command))...)
				cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
				cmd.WaitDelay, cmd.Dir = endLimit*patience, public
				said, _ := cmd.CombinedOutput()
				cancel()
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
