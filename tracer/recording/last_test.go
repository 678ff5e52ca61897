package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// counting are checkpoints that say how many events were added before, with their stacks.
func counting(events []event.Event, added *int) func() func() *event.Event {
	return func() func() *event.Event {
		n := *added
		return func() *event.Event {
			s := &event.State{Data: binary.AppendUvarint(nil, uint64(n))}
			for i := range events[:n] {
				if stack := events[i].Stack; stack != nil {
					s.Stacks = append(s.Stacks, stack)
				}
			}
			return &event.Event{TimeNs: events[n-1].TimeNs, Kind: event.Checkpoint, State: s}
		}
	}
}

// checkCheckpoint checks a checkpoint that counting made, and says how many events were
// before.
func checkCheckpoint(t testing.TB, e *event.Event, events []event.Event) int {
	t.Helper()
	qt.Assert(t, qt.Equals(e.Kind, event.Checkpoint))
	u, _ := binary.Uvarint(e.State.Data)
	n := int(u)
	qt.Assert(t, qt.Equals(e.TimeNs, events[n-1].TimeNs))
	stacks := e.State.Stacks
	for i := range events[:n] {
		if stack := events[i].Stack; stack != nil {
			qt.Assert(t, qt.IsTrue(slices.Equal(stacks[0].Frames(), stack.Frames())))
			stacks = stacks[1:]
		}
	}
	qt.Assert(t, qt.HasLen(stacks, 0))
	return n
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
	f, err := Create(path, FileOptions{Checkpoint: counting(events, &added), CheckpointEvents: every})
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

// goOnBefore is Last of a recording in memory.
func goOnBefore(r *Reader, recorded []byte, ns uint64) (found bool, err error) {
	in := bytes.NewReader(recorded)
	checkpoints, _ := findBlocks(in, r.offset, int64(len(recorded)))
	last := lastBefore(in, checkpoints, ns)
	return last != nil, r.goOnAt(in, last)
}

// readLast reads from the last checkpoint on, and checks that what it says is followed
// by what came next. It is how many events were before; 0 where there is no checkpoint.
func readLast(t testing.TB, recorded []byte, events []event.Event) (before int, err error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(recorded))
	qt.Assert(t, qt.IsNil(err))
	found, err := goOnBefore(r, recorded, math.MaxUint64)
	qt.Assert(t, qt.IsNil(err))
	got, err := readAll(r)
	if found {
		before = checkCheckpoint(t, &got[0], events)
		got = got[1:]
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
	for at := int(r.Offset()); at <= len(recorded); at += 13 {
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
	for at := 0; at < len(recorded); at += 11 {
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
	f, err := Create(path, FileOptions{Checkpoint: counting(events, &added), CheckpointEvents: 200})
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
		Checkpoint: func() func() *event.Event {
			made := counting(events, &added)()
			return func() *event.Event {
				<-goOn
				return made()
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
		Checkpoint: counting(events, &added), CheckpointEvents: 300, MaxBytes: most,
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

func TestLastGoesOnAtTheCheckpointBeforeATime(t *testing.T) {
	events := model(1000, newStacks(30))
	recorded, before := withSections(t, events, 300)
	for i, n := range before {
		at := events[n-1].TimeNs
		for ns, want := range map[uint64]int{at: i, at + 1: i + 1} {
			r, err := NewReader(bytes.NewReader(recorded))
			qt.Assert(t, qt.IsNil(err))
			found, err := goOnBefore(r, recorded, ns)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(found, want > 0))
			if found {
				got, err := readAll(r)
				qt.Assert(t, qt.IsNil(err))
				n := checkCheckpoint(t, &got[0], events)
				qt.Check(t, qt.Equals(n, before[want-1]))
				equal(t, got[1:], events[n:])
			}
		}
	}
}

// TestALongCheckpointIsSeveralBlocks: of its bytes and of its stacks.
func TestALongCheckpointIsSeveralBlocks(t *testing.T) {
	events := model(3, newStacks(1))
	want := &event.State{Data: make([]byte, 5<<20)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range want.Data {
		want.Data[i] = byte(r.Uint32())
	}
	for i := range 100_000 {
		want.Stacks = append(want.Stacks, event.StackOf([]event.Frame{{Kind: event.Python, Name: fmt.Sprintf("%0100d", i)}}))
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	w.Add(&event.Event{TimeNs: 7, Kind: event.Checkpoint, State: want})
	for i := range events {
		w.Add(&events[i])
	}
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	got := read(t, out.Bytes())
	qt.Assert(t, qt.Equals(got[0].TimeNs, 7))
	qt.Check(t, qt.IsTrue(bytes.Equal(got[0].State.Data, want.Data)))
	qt.Assert(t, qt.HasLen(got[0].State.Stacks, len(want.Stacks)))
	for i, s := range got[0].State.Stacks {
		qt.Assert(t, qt.IsTrue(slices.Equal(s.Frames(), want.Stacks[i].Frames())))
	}
	equal(t, got[1:], events)

	for cut := 200_000; cut < out.Len(); cut += 1 << 20 {
		r, err := NewReader(bytes.NewReader(out.Bytes()[:cut]))
		qt.Assert(t, qt.IsNil(err))
		got, err := readAll(r)
		qt.Check(t, qt.HasLen(got, 0))
		qt.Check(t, qt.ErrorIs(err, io.ErrUnexpectedEOF))
	}
}

// TestStacksHaveTheSameIDWhereverTheyAreReadFrom: those of events and of checkpoints.
func TestStacksHaveTheSameIDWhereverTheyAreReadFrom(t *testing.T) {
	events := model(200, newStacks(40))
	recorded, _ := withSections(t, events, 60)
	ids := make(map[*event.Stack]uint64) // as events have them
	for i, e := range read(t, recorded) {
		if s := events[i].Stack; s != nil {
			ids[s] = e.Stack.ID
		}
	}
	r, err := NewReader(bytes.NewReader(recorded))
	qt.Assert(t, qt.IsNil(err))
	_, err = goOnBefore(r, recorded, math.MaxUint64)
	qt.Assert(t, qt.IsNil(err))
	var checkpoint event.Event
	qt.Assert(t, qt.IsNil(r.Next(&checkpoint)))
	stacks := checkpoint.State.Stacks
	for i := range events {
		if s := events[i].Stack; s != nil && len(stacks) > 0 {
			qt.Assert(t, qt.Equals(stacks[0].ID, ids[s]))
			stacks = stacks[1:]
		}
	}
	qt.Check(t, qt.HasLen(stacks, 0))
}
