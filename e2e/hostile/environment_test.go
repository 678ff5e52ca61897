package hostile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// TestEnvironment: whatever the environment says, a command ends with a result or one clean line,
// and with little memory.
func TestEnvironment(t *testing.T) {
	u := newUser(t, 4)
	file := filepath.Join(public, "environment.ttmem")
	writeRecording(t, file, "plain", 0)
	qt.Assert(t, qt.IsNil(os.Chmod(file, 0o644)))
	fifo := filepath.Join(public, "fifo")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o666)))
	for _, c := range []struct {
		variable, value, command string
		status                   int
	}{
		{"TTMEM_SOCKET", "/dev/zero", "dump", 1},
		{"TTMEM_SOCKET", fifo, "dump", 1},
		{"TTMEM_SOCKET", public, "top --once", 1},
		{"TTMEM_SOCKET", "/" + strings.Repeat("x", 100000), "map", 1},
		{"TTMEM_SOCKET", "/" + hostileName, "report", 1},
		{"TTMEM_SOCKET", fifo, "mark x", 1},
		{"TTMEM_CACHE", hostileName, "report " + file, 0},
		{"COLUMNS", "999999999999999999999", "top " + file + " --once", 0},
		{"COLUMNS", "-1", "report " + file, 0},
		{"LANG", strings.Repeat("UTF-8", 10000), "report " + file, 0},
		{"TERM", "../../../../dev/zero", "top " + file + " --once", 0},
		{"HOME", fifo, "report " + file, 0},
		{"TMPDIR", fifo, "report " + file, 0},
		{"TZ", "/dev/zero", "log " + file, 0},
		{"TZ", fifo, "report " + file, 0},
		{"DEBUGINFOD_URLS", "file:///dev/zero", "dump " + file, 0},
		{"LD_PRELOAD", "/dev/zero", "report " + file, 0},
		{"GOMEMLIMIT", "1", "report " + file, 0},
	} {
		name := fmt.Sprintf("%s=%.12q", c.variable, strings.TrimPrefix(c.value, public))
		t.Run(name, func(t *testing.T) {
			cmd := u.command(ttmem, strings.Fields(c.command)...)
			cmd.Env = append(cmd.Env, c.variable+"="+strings.ReplaceAll(c.value, "\x00", ""))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			qt.Assert(t, qt.IsNil(start(cmd)))
			stop := time.AfterFunc(time.Minute*patience, func() { cmd.Process.Kill() })
			_ = cmd.Wait()
			var failures []string
			fail := func(format string, args ...any) { failures = append(failures, fmt.Sprintf(format, args...)) }
			if !stop.Stop() {
				fail("it does not end")
			}
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				fail("status %d: %.300s", got, out.String())
			}
			if why := unclean(out.Bytes()); why != "" {
				fail("it prints %s", why)
			}
			if n := bytes.Count(out.Bytes(), []byte("\n")); c.status != 0 && n != 1 {
				fail("it prints %d lines: %.300q", n, out.String())
			}
			report(t, "variable "+name, failures)
		})
	}
}
