package recording

import (
	"bytes"
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// rolled adds events to a Rolling that drops what is over its bound, and checks after each hundred that it
// has a checkpoint and all events after that.
func rolled(t *testing.T, events []event.Event, most int) (oldest int) {
	t.Helper()
	added := 0
	first := counting(events, &added)
	r, err := NewRolling(NewHeader(), most, func() func() *event.Event {
		if added == 0 {
			return func() *event.Event { return &event.Event{Kind: event.Checkpoint, State: &event.State{Data: []byte{0}}} }
		}
		return first()
	})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		added++
		r.Add(&events[i])
		if added%100 > 0 {
			continue
		}
		r.Flush()
		for _, one := range r.parts {
			for one.state.Load() == nil {
			}
		}
		for r.Bytes() > most && r.Drop() {
		}
		var recorded bytes.Buffer
		all := r.All(7)
		_, err := all.WriteTo(&recorded)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(r.Bytes() <= most || len(r.parts) == 1))
		in, err := NewReader(&recorded)
		qt.Assert(t, qt.IsNil(err))
		got := mustReadAll(t, in)
		oldest = 0
		if len(got[0].State.Data) > 0 && got[0].State.Data[0] > 0 {
			oldest = checkCheckpoint(t, &got[0], events)
		}
		equal(t, got[1:], events[oldest:added])
		end, ok := in.End()
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(end.TimeNs, 7))
	}
	return oldest
}

func mustReadAll(t *testing.T, r *Reader) []event.Event {
	t.Helper()
	got, err := readAll(r)
	qt.Assert(t, qt.IsNil(err))
	return got
}

func TestARollingHasACheckpointAndWhatFollowed(t *testing.T) {
	events := model(3000, newStacks(30))
	qt.Check(t, qt.Equals(rolled(t, events, math.MaxInt32), 0))
	dropped := rolled(t, events, 40<<10)
	qt.Check(t, qt.IsTrue(dropped > 0 && dropped < len(events)), qt.Commentf("%d", dropped))
}
