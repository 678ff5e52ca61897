package recording

import (
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// checkpointing is how a recording is made with a checkpoint each so many events.
func checkpointing(events []event.Event, every int, added *int) FileOptions {
	return FileOptions{Checkpoint: restating(events, added), CheckpointEvents: every}
}

// withCheckpoints is a recording with a section each so many events.
func withCheckpoints(t testing.TB, events []event.Event, every int) string {
	t.Helper()
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, checkpointing(events, every, &added))
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	return path
}

func TestFromGoesOnAtAnyCheckpoint(t *testing.T) {
	events := model(1000, newStacks(30))
	r, err := Open(withCheckpoints(t, events, 300))
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	list := r.Checkpoints()
	qt.Assert(t, qt.HasLen(list, 3))
	for _, i := range []int{2, 0, 1, 0} {
		before := 300 * (i + 1)
		qt.Check(t, qt.Equals(list[i].TimeNs, events[before-1].TimeNs))
		qt.Check(t, qt.IsFalse(list[i].Leads()))
		qt.Check(t, qt.IsTrue(list[i].Size() > 0))
		intact, err := r.From(list[i])
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(intact))
		var first event.Event
		qt.Assert(t, qt.IsNil(r.Next(&first)))
		qt.Check(t, qt.IsTrue(r.Checkpoint()))
		qt.Check(t, qt.Equals(int(first.Count), before))
		got, err := readAll(r.Reader)
		qt.Assert(t, qt.IsNil(err))
		equal(t, got, events[before-1:])
	}
}

func TestAFileThatFollowsBeginsWithACheckpoint(t *testing.T) {
	events := model(5000, newStacks(100))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	o := checkpointing(events, 1<<30, &added)
	o.MaxBytes = 16 << 10
	f, err := Create(path, o)
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	for i, path := range f.Paths() {
		r, err := Open(path)
		qt.Assert(t, qt.IsNil(err))
		defer r.Close()
		list := r.Checkpoints()
		if i == 0 {
			qt.Check(t, qt.HasLen(list, 0))
			continue
		}
		qt.Assert(t, qt.HasLen(list, 1))
		intact, err := r.From(list[0])
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(intact))
		var first event.Event
		qt.Assert(t, qt.IsNil(r.Next(&first)))
		qt.Check(t, qt.Equals(list[0].TimeNs, events[first.Count-1].TimeNs))
	}
}

func TestStacksHaveTheSameIDWhereverTheyAreReadFrom(t *testing.T) {
	events := model(200, newStacks(40))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, checkpointing(events, 60, &added))
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		added++
		if added%10 == 0 {
			qt.Assert(t, qt.IsNil(f.Flush()))
		}
	}
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	got, err := readAll(r.Reader)
	qt.Assert(t, qt.IsNil(err))
	some := false
	for i := range got {
		if s := events[i].Stack; s != nil {
			some = true
			qt.Assert(t, qt.Equals(got[i].Stack.ID, idOf(s)))
			qt.Assert(t, qt.Equals(idOf(got[i].Stack), idOf(s)))
		}
	}
	qt.Check(t, qt.IsTrue(some))
}

// idOf is the ID that a stack has when it is read from a recording: the same for
// equal frames, in all files, whatever ID they had when they were written.
func idOf(s *event.Stack) uint64 {
	frames := s.Frames()
	frames = frames[:min(len(frames), maxStackFrames)]
	id := uint64(len(frames))
	for i := range frames {
		id = mixed(id, hashFrame(&frames[i]))
	}
	return id | 1 // never 0
}
