package aggregate

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestACommandLineComesLater: a ProcessStart that is a correction adds the command line, and ends nothing.
func TestACommandLineComesLater(t *testing.T) {
	s := New()
	s.Apply(&event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 7, Comm: "python", UID: 5})
	again := event.Event{TimeNs: 2, Kind: event.ProcessStart, PID: 7, Comm: "python", UID: 5, Start: &event.Start{Command: "python model.py"}, Reread: true}
	for e := range s.Implied(&again) {
		t.Errorf("it implies %v", e.Kind)
	}
	s.Apply(&again)
	list := s.Snapshot().Processes
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Command, "python model.py"))
	qt.Check(t, qt.Equals(list[0].UID, 5))
	qt.Check(t, qt.IsNil(list[0].Exit))
}
