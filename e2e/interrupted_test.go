package e2e

import (
	"bytes"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// TestAttachIsInterruptedBeforeItIsReady: however early a signal comes, ttmem either records and
// reports, or says in one line that nothing was traced. A process that has not yet come to main is
// ended by the kernel.
func TestAttachIsInterruptedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "hold.py"), "3", "512")
	p.expect(t, "holding")
	early := 0
	signals := []syscall.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) { // as under nohup, which programs inherit
		signals = append(signals, unix.SIGHUP)
	}
	for i, delay := range []time.Duration{0, 20, 50, 100, 150, 200, 300, 500} {
		sent := signals[i%len(signals)]
		cmd := exec.Command(ttmem, "attach", "-p", strconv.Itoa(p.Process.Pid), "-o", filepath.Join(t.TempDir(), "events.ttmem"))
		var out bytes.Buffer
		cmd.Stderr = &out
		qt.Assert(t, qt.IsNil(cmd.Start()))
		time.Sleep(delay * time.Millisecond)
		qt.Assert(t, qt.IsNil(cmd.Process.Signal(sent)))
		cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch comment := qt.Commentf("%v after %d ms: %v\n%s", sent, delay, cmd.ProcessState, &out); {
		case status.Signaled():
			qt.Check(t, qt.Equals(out.String(), ""), comment)
		case bytes.Contains(out.Bytes(), []byte("interrupted before tracing began: nothing was traced")):
			early++
			qt.Check(t, qt.Equals(status.ExitStatus(), 128+int(sent)), comment)
			qt.Check(t, qt.Equals(bytes.Count(out.Bytes(), []byte("\n")), 1), comment)
		default:
			qt.Check(t, qt.StringContains(out.String(), "recorded"), comment)
		}
	}
	t.Logf("%d of 8 before tracing began", early)
}
