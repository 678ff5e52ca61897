package tracer

import (
	"context"
	"os"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// TestEventsAreReadAtRaisedPriority: programs that occupy all processors do not make events late.
// What calls Run keeps its own priority.
func TestEventsAreReadAtRaisedPriority(t *testing.T) {
	tracetest.NeedsRoot(t)
	tr, err := New(Options{Processes: []int{os.Getpid()}, NoStacks: true})
	qt.Assert(t, qt.IsNil(err))
	defer tr.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	niceness := func() int {
		n, _ := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
		return 20 - n // as the kernel gives it
	}
	before, during := niceness(), 0
	qt.Assert(t, qt.IsNil(tr.Run(ctx, func(*event.Event) {}, func() { during = niceness() })))
	qt.Check(t, qt.Equals(during, host.RaisedNiceness))
	qt.Check(t, qt.Equals(niceness(), before))
}
