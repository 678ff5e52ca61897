package e2e

import (
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// recordAgain records the events of a recording once more, with notes and with a checkpoint
// each so many events. It returns the checkpoints.
func recordAgain(t *testing.T, from, to string, every int) []recording.Checkpoint {
	t.Helper()
	in, err := recording.Open(from)
	qt.Assert(t, qt.IsNil(err))
	defer in.Close()
	header := in.Header()
	state := aggregate.New()
	out, err := recording.Create(to, recording.FileOptions{
		Options:          recording.Options{Header: &header},
		Checkpoint:       func() iter.Seq[*event.Event] { return state.Freeze(nil) },
		CheckpointEvents: every,
		Note:             state.TakeRanges,
	})
	qt.Assert(t, qt.IsNil(err))
	var e event.Event
	for n := 1; ; n++ {
		err := in.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		qt.Assert(t, qt.IsNil(err))
		state.Apply(&e)
		out.Add(&e)
		if n%max(20, every/10) == 0 {
			qt.Assert(t, qt.IsNil(out.Flush()))
			qt.Assert(t, qt.IsNil(out.Settle()))
		}
	}
	end, _ := in.End()
	qt.Assert(t, qt.IsNil(out.Close(end)))
	again, err := recording.Open(to)
	qt.Assert(t, qt.IsNil(err))
	defer again.Close()
	return again.Checkpoints()
}
