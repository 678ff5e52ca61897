package pagetest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// An Export is a file of events that a Writer makes, with the State of the events.
type Export[W writer] struct {
	T      testing.TB
	Path   string
	Writer W
	State  *aggregate.State
	Now    uint64
	// Apply adds an event at its own time.
	Apply func(*event.Event)
	Out   *os.File
}

type writer interface {
	Event(e *event.Event, s *aggregate.State)
	Close() error
}

// NewExport begins a file with a Writer that create returns.
func NewExport[W writer](t testing.TB, name string, create func(out io.Writer, wall func(ns uint64) int64) (W, error)) *Export[W] {
	t.Helper()
	x := &Export[W]{T: t, Path: filepath.Join(t.TempDir(), name), State: aggregate.New(), Now: 1000 * Second}
	var err error
	x.Out, err = os.Create(x.Path)
	qt.Assert(t, qt.IsNil(err))
	x.Writer, err = create(x.Out, func(ns uint64) int64 { return 1_700_000_000e9 + int64(ns) })
	qt.Assert(t, qt.IsNil(err))
	x.Apply = x.State.Completed(func(e *event.Event) { x.Writer.Event(e, x.State) })
	return x
}

// Event adds an event, a millisecond after the one before.
func (x *Export[W]) Event(e event.Event) {
	x.Now += 1e6
	e.TimeNs = x.Now
	x.Apply(&e)
}

// Close completes the file.
func (x *Export[W]) Close() {
	x.T.Helper()
	qt.Assert(x.T, qt.IsNil(x.Writer.Close()))
	qt.Assert(x.T, qt.IsNil(x.Out.Close()))
}
