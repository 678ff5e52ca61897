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

// recordAgain records the events of a recording once more, with a checkpoint each so
// many events. It returns the checkpoints, and how many of them have a note.
func recordAgain(t *testing.T, from, to string, every int) (checkpoints []recording.Checkpoint, noted int) {
	t.Helper()
	in, err := recording.Open(from)
	qt.Assert(t, qt.IsNil(err))
	defer in.Close()
	header := in.Header()
	state := aggregate.New()
	growth := aggregate.NewGrowth(aggregate.GrowthOptions{StackID: recording.StackID})
	out, err := recording.Create(to, recording.FileOptions{
		Options:          recording.Options{Header: &header},
		Checkpoint:       func() iter.Seq[*event.Event] { return state.Freeze(nil) },
		CheckpointNote:   growth.Note,
		CheckpointEvents: every,
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
		growth.Apply(&e)
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
	checkpoints = again.Checkpoints()
	for _, c := range checkpoints {
		if again.CheckpointNote(c) != nil {
			noted++
		}
	}
	return checkpoints, noted
}
