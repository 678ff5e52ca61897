package aggregate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// calling gives a buffer a call site of its own.
func calling(stack uint64, e event.Event) event.Event {
	e.Stack = event.NewStack(stack, nil)
	return e
}

// unsafeOf returns how many buffers of each call stack a trace may have overwritten.
func unsafeOf(t *testing.T, s *aggregate.State) map[uint64]uint64 {
	t.Helper()
	snap, sum := s.Snapshot(), uint64(0)
	of := make(map[uint64]uint64)
	for _, u := range snap.Unsafe {
		of[memory.StackID(u.Stack)] += u.Count
		sum += u.Count
	}
	qt.Check(t, qt.Equals(snap.UnsafeCount, sum))
	return of
}

// TestBuffersThatAReplayMayOverwrite are those that were allocated after the capture, and live at the replay:
// each counts once.
func TestBuffersThatAReplayMayOverwrite(t *testing.T) {
	events := []event.Event{
		chipOf(1000), calling(1, tensor(2, 7, 1, 0)),
		traces(10, event.TraceBegin, 3, 0), calling(2, tensor(11, 7, 2, 0)), traces(12, event.TraceEnd, 3, 0), traceBuffer(13, 3, false),
		calling(4, tensor(14, 7, 4, 0)), free(15, 7, 4), // ended before
		calling(5, tensor(16, 7, 5, 1)), // on another chip
		calling(6, tensor(17, 7, 6, 0)), calling(6, tensor(18, 7, 7, 0)),
	}
	s := after(events...)
	qt.Check(t, qt.HasLen(unsafeOf(t, s), 0)) // no replay yet
	for name, s := range map[string]*aggregate.State{"played": s, "restored": restored(t, s)} {
		for _, e := range []event.Event{
			traces(20, event.TraceReplay, 3, 0), calling(8, tensor(21, 7, 8, 0)), traces(22, event.TraceReplay, 3, 0), free(23, 7, 6),
			traces(24, event.TraceRelease, 3, 0), calling(9, tensor(25, 7, 9, 0)), traces(26, event.TraceReplay, 3, 0),
		} {
			s.Apply(&e)
		}
		for _, s := range []*aggregate.State{s, restored(t, s)} {
			qt.Check(t, qt.DeepEquals(unsafeOf(t, s), map[uint64]uint64{6: 2, 8: 1}), qt.Commentf("%s", name))
			first := s.Snapshot().Unsafe[0]
			qt.Check(t, qt.DeepEquals([]uint64{first.TimeNs, first.TraceID}, []uint64{20, 3}))
			qt.Check(t, qt.DeepEquals(first.Devices, []int{0}))
		}
	}
}

// TestUnsafeBuffersHaveOwners: whether their owners were searched before the replay or after it.
func TestUnsafeBuffersHaveOwners(t *testing.T) {
	s := after(started(7, 1), chipOf(1000), traces(10, event.TraceBegin, 3, 0), traces(12, event.TraceEnd, 3, 0),
		calling(6, tensor(17, 7, 6, 0)), owned(18, 6, "early"), calling(7, tensor(18, 7, 7, 0)), traces(20, event.TraceReplay, 3, 0),
		owned(21, 7, "late"))
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		var owners []string
		for _, u := range s.Snapshot().Unsafe {
			owners = append(owners, u.Owner)
		}
		qt.Check(t, qt.DeepEquals(owners, []string{"early", "late"}))
	}
}

// TestUnsafeBuffersOfAnySequence: with several traces on two chips, each replay finds what a list of all buffers
// and traces gives, however many buffers came and went.
func TestUnsafeBuffersOfAnySequence(t *testing.T) {
	type trace struct {
		chip      int
		capturing bool
		after     map[uint64]bool // allocated since its capture
	}
	r := rand.New(rand.NewPCG(3, 4))
	s := after(chipOf(1000))
	now, id := uint64(10), uint64(0)
	apply := func(e event.Event) { s.Apply(&e) }
	live, found := make(map[uint64]int), make(map[uint64]bool)
	known := make(map[uint64]*trace)
	for range 200_000 {
		now++
		number, chip := r.Uint64N(4), 0
		chip = int(number % 2)
		switch k := r.IntN(40); {
		case k < 18:
			id++
			apply(calling(1, tensor(now, 7, id, chip)))
			live[id] = chip
			for _, one := range known {
				if !one.capturing {
					one.after[id] = true
				}
			}
		case k < 36:
			for old := range live { // any
				apply(free(now, 7, old))
				delete(live, old)
				break
			}
		case k == 36:
			apply(traces(now, event.TraceBegin, number, chip))
			known[number] = &trace{chip: chip, capturing: true, after: make(map[uint64]bool)}
		case k == 37 && known[number] != nil:
			apply(traces(now, event.TraceEnd, number, chip))
			known[number].capturing = false
			clear(known[number].after)
		case k == 38 && known[number] != nil && r.IntN(50) == 0:
			apply(traces(now, event.TraceRelease, number, chip))
			delete(known, number)
		case k == 39 && known[number] != nil && r.IntN(20) == 0:
			apply(traces(now, event.TraceReplay, number, chip))
			for one := range known[number].after {
				if on, is := live[one]; is && on == known[number].chip {
					found[one] = true
				}
			}
		}
		if r.IntN(5000) == 0 {
			s = restored(t, s)
			qt.Assert(t, qt.Equals(s.Snapshot().UnsafeCount, uint64(len(found))))
		}
	}
	qt.Check(t, qt.IsTrue(len(found) > 100), qt.Commentf("%d", len(found)))
	qt.Check(t, qt.Equals(s.Snapshot().UnsafeCount, uint64(len(found))))
}
