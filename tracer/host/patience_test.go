package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// patientName is the name under which this program is patient while it is stopped, and then prints whether it still is.
const patientName = "patient"

const stoppedTime = time.Second

func init() {
	if os.Args[0] != patientName {
		return
	}
	ctx, stop := Patient(context.Background(), stoppedTime/2)
	defer stop()
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(10 * patienceTick)
	fmt.Print(ctx.Err() == nil)
	os.Exit(0)
}

func TestPatient(t *testing.T) {
	ctx, stop := Patient(t.Context(), 20*time.Millisecond)
	defer stop()
	<-ctx.Done()
	qt.Check(t, qt.ErrorIs(context.Cause(ctx), ErrNoAnswer))

	parent, end := context.WithCancelCause(t.Context())
	cause := errors.New("tracing ends")
	ctx, stop = Patient(parent, time.Hour)
	defer stop()
	end(cause)
	<-ctx.Done()
	qt.Check(t, qt.ErrorIs(context.Cause(ctx), cause))
}

// TestPatientWithoutAProcessor: time in which the process does not run does not count.
func TestPatientWithoutAProcessor(t *testing.T) {
	var out strings.Builder
	child := &exec.Cmd{Path: "/proc/self/exe", Args: []string{patientName}, Stdout: &out}
	qt.Assert(t, qt.IsNil(child.Start()))
	var status unix.WaitStatus
	_, err := unix.Wait4(child.Process.Pid, &status, unix.WUNTRACED, nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(status.Stopped()))
	time.Sleep(stoppedTime)
	qt.Assert(t, qt.IsNil(child.Process.Signal(unix.SIGCONT)))
	qt.Assert(t, qt.IsNil(child.Wait()))
	qt.Check(t, qt.Equals(out.String(), "true"))
}
