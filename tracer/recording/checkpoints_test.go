package recording

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// noting is how a recording is made that has notes: each says how many events were
// added when it was made.
func noting(events []event.Event, every int, added *int) FileOptions {
	said := func() []byte { return binary.AppendUvarint(nil, uint64(*added)) }
	return FileOptions{
		Checkpoint: restating(events, added), CheckpointEvents: every, Note: said,
	}
}

func noted(data []byte) int {
	n, _ := binary.Uvarint(data)
	return int(n)
}

// withNotes is a recording with a section each so many events, and notes.
func withNotes(t testing.TB, events []event.Event, every int) string {
	t.Helper()
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, noting(events, every, &added))
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	return path
}

func TestFromGoesOnAtAnyCheckpoint(t *testing.T) {
	events := model(1000, newStacks(30))
	r, err := Open(withNotes(t, events, 300))
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

func TestNotesAreOfTheEventsBeforeThem(t *testing.T) {
	events := model(100, newStacks(3))
	r, err := Open(withNotes(t, events, 30))
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	checkpoints := r.Checkpoints()
	qt.Assert(t, qt.HasLen(checkpoints, 3))
	n, last := 0, uint64(0)
	for note := range r.Notes() {
		n += 10
		for i := range checkpoints {
			qt.Check(t, qt.Equals(note.Offset <= checkpoints[i].Offset(), n <= 30*(i+1)))
		}
		qt.Check(t, qt.Equals(noted(note.Data), n))
		qt.Check(t, qt.Equals(note.FirstNs, last))
		last = note.LastNs
		qt.Check(t, qt.Equals(last, latest(events[:n])))
	}
	qt.Check(t, qt.Equals(n, 100))
	got, err := readAll(r.Reader)
	qt.Assert(t, qt.IsNil(err))
	equal(t, got, events)
}

func latest(events []event.Event) (ns uint64) {
	for i := range events {
		ns = max(ns, events[i].TimeNs)
	}
	return ns
}

func TestAFileThatFollowsBeginsWithACheckpoint(t *testing.T) {
	events := model(5000, newStacks(100))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	o := noting(events, 1<<30, &added)
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
		qt.Check(t, qt.IsTrue(first.Count > 0))
		qt.Check(t, qt.Equals(list[0].TimeNs, events[first.Count-1].TimeNs))
	}
}

func TestDamagedNotesAreNotGiven(t *testing.T) {
	events := model(70, newStacks(2))
	path := withNotes(t, events, 30)
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	read := func(b []byte) (notes int) {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
		r, err := Open(path)
		if err != nil {
			return 0
		}
		defer r.Close()
		for note := range r.Notes() {
			qt.Assert(t, qt.Equals(noted(note.Data)%10, 0))
			notes++
		}
		return notes
	}
	for at := 0; at < len(recorded); at += 3 {
		changed := bytes.Clone(recorded)
		changed[at] ^= 0x10
		read(changed)
	}
	qt.Check(t, qt.Equals(read(recorded), 7))
}

// TestALongNoteIsGiven: it is compressed, as events are.
func TestALongNoteIsGiven(t *testing.T) {
	events := model(60, newStacks(2))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	o := noting(events, 30, &added)
	long := bytes.Repeat([]byte("what was "), 10_000)
	o.Note = func() []byte { return long }
	f, err := Create(path, o)
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	qt.Assert(t, qt.IsTrue(r.Size() < int64(len(long))))
	for note := range r.Notes() {
		qt.Check(t, qt.DeepEquals(note.Data, long))
	}
}

func TestStacksHaveTheSameIDWhereverTheyAreReadFrom(t *testing.T) {
	events := model(200, newStacks(40))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, noting(events, 60, &added))
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		if s := events[i].Stack; s != nil {
			qt.Assert(t, qt.Equals(f.StackID(s), StackID(s)))
		}
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
			qt.Assert(t, qt.Equals(got[i].Stack.ID, StackID(s)))
			qt.Assert(t, qt.Equals(StackID(got[i].Stack), StackID(s)))
		}
	}
	qt.Check(t, qt.IsTrue(some))
}
