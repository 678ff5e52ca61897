package recording

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// restating are checkpoints that say how many events were added before, and repeat the
// last of them.
func restating(events []event.Event, added *int) func() iter.Seq[*event.Event] {
	return func() iter.Seq[*event.Event] {
		n := *added
		return func(yield func(*event.Event) bool) {
			_ = yield(&event.Event{Kind: event.Total, Count: uint64(n)}) && yield(&events[n-1])
		}
	}
}

// addFlushed adds events, flushes each ten of them and waits for sections that are made.
func addFlushed(t testing.TB, f *File, events []event.Event, added *int) {
	t.Helper()
	for i := range events {
		f.Add(&events[i])
		if *added = i + 1; *added%10 == 0 {
			qt.Assert(t, qt.IsNil(f.Flush()))
			qt.Assert(t, qt.IsNil(f.Settle()))
		}
	}
}

// withSections is a recording with a section each so many events, and how many events
// were before each.
func withSections(t testing.TB, events []event.Event, every int) (recorded []byte, before []int) {
	t.Helper()
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, FileOptions{Checkpoint: restating(events, &added), CheckpointEvents: every})
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{TimeNs: 5})))
	recorded, err = os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	for n := every; n <= len(events); n += every {
		before = append(before, n)
	}
	return recorded, before
}

// readLast reads from the last checkpoint on, and checks that what it says is followed
// by what came next. It is how many events were before; 0 where there is no checkpoint.
func readLast(t testing.TB, recorded []byte, events []event.Event) (before int, err error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(recorded))
	qt.Assert(t, qt.IsNil(err))
	found, err := r.last(bytes.NewReader(recorded), int64(len(recorded)))
	qt.Assert(t, qt.IsNil(err))
	got, err := readAll(r)
	if found {
		before = int(got[0].Count)
		equal(t, got[1:2], events[before-1:before])
		got = got[2:]
	}
	equal(t, got, events[before:before+len(got)])
	return before, err
}

func TestLastGoesOnAtTheLastCheckpoint(t *testing.T) {
	events := model(1000, newStacks(30))
	recorded, before := withSections(t, events, 300)
	n, err := readLast(t, recorded, events)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(n, before[len(before)-1]))
	// who wants all events gets each once
	equal(t, read(t, recorded), events)
}

func TestLastOfAFileThatIsCutIsTheLastWholeOne(t *testing.T) {
	events := model(90, newStacks(2))
	recorded, before := withSections(t, events, 30)
	seen := make(map[int]bool)
	r, err := NewReader(bytes.NewReader(recorded))
	qt.Assert(t, qt.IsNil(err))
	for at := int(r.Offset()); at <= len(recorded); at += 5 {
		n, err := readLast(t, recorded[:at], events)
		if err != nil {
			qt.Assert(t, qt.ErrorIs(err, io.ErrUnexpectedEOF))
		}
		seen[n] = true
	}
	for _, n := range append(before, 0) {
		qt.Check(t, qt.IsTrue(seen[n]), qt.Commentf("%d", n))
	}
}

func TestADamagedCheckpointIsNotUsed(t *testing.T) {
	events := model(70, newStacks(2))
	recorded, before := withSections(t, events, 30)
	earlier := false
	for at := 0; at < len(recorded); at += 3 {
		changed := bytes.Clone(recorded)
		changed[at] ^= 0x10
		if r, err := NewReader(bytes.NewReader(changed)); err != nil || at < int(r.Offset()) {
			continue
		}
		n, err := readLast(t, changed, events)
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			qt.Assert(t, qt.ErrorIs(err, io.ErrUnexpectedEOF), qt.Commentf("byte %d", at))
		}
		qt.Assert(t, qt.IsTrue(n == 0 || slices.Contains(before, n)), qt.Commentf("byte %d: %d", at, n))
		earlier = earlier || n == before[len(before)-2]
	}
	qt.Check(t, qt.IsTrue(earlier))
}

func TestLastOfAFileWhoseWriterWasKilled(t *testing.T) {
	events := model(500, newStacks(4))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, FileOptions{Checkpoint: restating(events, &added), CheckpointEvents: 200})
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	n, err := readLast(t, recorded, events)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(n, 400))
}

func TestACheckpointIsMadeWhileEventsAreAdded(t *testing.T) {
	events := model(300, newStacks(4))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	goOn := make(chan struct{})
	f, err := Create(path, FileOptions{
		Checkpoint: func() iter.Seq[*event.Event] {
			told := restating(events, &added)()
			return func(yield func(*event.Event) bool) {
				<-goOn
				told(yield)
			}
		},
		CheckpointEvents: 100,
	})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		if added = i + 1; added%10 == 0 {
			qt.Assert(t, qt.IsNil(f.Flush())) // which does not wait
		}
	}
	close(goOn)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	n, err := readLast(t, recorded, events)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(n, 100))
	equal(t, read(t, recorded), events)
}

func TestACheckpointThatHasNoRoomIsLeftOut(t *testing.T) {
	events := model(5000, newStacks(100))
	path, added := filepath.Join(t.TempDir(), "x"), 0
	const most = 16 << 10
	f, err := Create(path, FileOptions{
		Checkpoint: restating(events, &added), CheckpointEvents: 300, MaxBytes: most,
	})
	qt.Assert(t, qt.IsNil(err))
	addFlushed(t, f, events, &added)
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	paths := f.Paths()
	qt.Assert(t, qt.IsTrue(len(paths) > 1))
	var all []event.Event
	for _, path := range paths {
		info, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(info.Size() <= most), qt.Commentf("%d", info.Size()))
		got, _, _ := readFile(t, path)
		all = append(all, got...)
	}
	equal(t, all, events)
}

func TestLeftTellsOfAllThatNobodyFreed(t *testing.T) {
	events := model(1000, newStacks(30))
	var want []event.Event
	for _, i := range []int{5, 444, 445, 990} {
		events[i].Kind, events[i].Reason = event.Free, event.ReasonProcessExit
		want = append(want, events[i])
	}
	recorded, _ := withSections(t, events, 300)
	path := filepath.Join(t.TempDir(), "x")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, recorded, 0o644)))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	_, err = r.Last()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(r.Left()))
	all, err := readAll(r.Reader)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(all) < 100), qt.Commentf("%d", len(all)))
	equal(t, slices.DeleteFunc(all, func(e event.Event) bool { return e.Kind != event.Free || e.Reason != event.ReasonProcessExit }), want)
}
