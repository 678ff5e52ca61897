package recording

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// beginning are checkpoints as those of counting, and one of nothing before the first event.
func beginning(events []event.Event, added *int) func() func() *event.Event {
	first := counting(events, added)
	return func() func() *event.Event {
		if *added == 0 {
			return func() *event.Event { return &event.Event{Kind: event.Checkpoint, State: new(event.State)} }
		}
		return first()
	}
}

// settle waits for the checkpoints of all parts.
func (r *Rolling) settle() {
	for _, one := range r.parts {
		for one.state.Load() == nil {
			runtime.Gosched()
		}
	}
}

// check checks that an Excerpt has all events, or a checkpoint and those after that, and returns how many were
// before.
func (e *Excerpt) check(t *testing.T, events []event.Event) (before int) {
	t.Helper()
	var recorded bytes.Buffer
	_, err := e.Data.WriteTo(&recorded)
	qt.Assert(t, qt.IsNil(err))
	in, err := NewReader(&recorded)
	qt.Assert(t, qt.IsNil(err))
	got, err := readAll(in)
	qt.Assert(t, qt.IsNil(err))
	if got[0].Kind == event.Checkpoint {
		before, got = checkCheckpoint(t, &got[0], events), got[1:]
	}
	equal(t, got, events[before:])
	qt.Check(t, qt.Equals(e.Events, uint64(len(events)-before)))
	end, ok := in.End()
	qt.Check(t, qt.IsTrue(ok))
	qt.Check(t, qt.Equals(end.TimeNs, 7))
	return before
}

// rolled adds events to a Rolling that drops what is over its bound, and checks after each hundred that it
// has a checkpoint and all events after that.
func rolled(t *testing.T, events []event.Event, most int) (oldest int) {
	t.Helper()
	added := 0
	r, err := NewRolling(NewHeader(), most/4, beginning(events, &added))
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		added++
		r.Add(&events[i])
		if added%100 > 0 {
			continue
		}
		r.Flush()
		r.settle()
		r.Trim(most)
		qt.Assert(t, qt.IsTrue(r.Bytes() <= most || len(r.parts) == 1))
		all := r.Newest(math.MaxUint64, 0, 7)
		oldest = all.check(t, events[:added])
	}
	return oldest
}

func TestARollingHasACheckpointAndWhatFollowed(t *testing.T) {
	events := model(3000, newStacks(30))
	qt.Check(t, qt.Equals(rolled(t, events, math.MaxInt32), 0))
	dropped := rolled(t, events, 40<<10)
	qt.Check(t, qt.IsTrue(dropped > 0 && dropped < len(events)), qt.Commentf("%d", dropped))
}

// An excerpt has as many events as it should have, and more while they are within its bound.
func TestAnExcerptOfARollingIsAsLongAsItHasToBe(t *testing.T) {
	events := model(3000, newStacks(30))
	added := 0
	r, err := NewRolling(NewHeader(), 4<<10, beginning(events, &added))
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		added++
		if r.Add(&events[i]); added%100 == 0 {
			r.Flush()
			r.settle()
		}
	}
	qt.Assert(t, qt.IsTrue(len(r.parts) > 4))
	all := r.Newest(math.MaxUint64, 0, 7)
	qt.Check(t, qt.Equals(all.check(t, events), 0))
	qt.Check(t, qt.Equals(all.First, 0))
	for n := uint64(0); n < uint64(len(events)); n += 397 {
		one := r.Newest(n, 0, 7)
		one.check(t, events)
		qt.Assert(t, qt.IsTrue(one.Events >= n))
		if one.First < len(r.parts)-1 { // without its first part, it would be too short
			qt.Assert(t, qt.IsTrue(one.Events-r.parts[one.First].events < n))
		}
	}
	size := func(e Excerpt) (n int) {
		for _, b := range e.Data {
			n += len(b)
		}
		return n
	}
	whole, latest := size(all), r.Newest(0, 0, 7)
	qt.Check(t, qt.Equals(latest.First, len(r.parts)-1))
	qt.Check(t, qt.Equals(r.Newest(0, math.MaxInt, 7).First, 0))
	for most := size(latest); most < whole; most += 10_000 {
		one := r.Newest(0, most, 7)
		qt.Check(t, qt.IsTrue(size(one) <= most+size(Excerpt{Data: net.Buffers{r.Header.bytes()}})+endMark))
	}
	r.Drop()
	all = r.Newest(math.MaxUint64, 0, 7)
	qt.Check(t, qt.Equals(all.First, 1)) // the parts keep their numbers
	qt.Check(t, qt.IsTrue(all.check(t, events) > 0))
}

// A part has few events, also if they take little room, but takes as much room as its checkpoint.
func TestPartsOfARollingAreShort(t *testing.T) {
	events := model(2000, newStacks(30))
	dice := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ state, parts int }{{10, 1 + len(events)/200}, {1 << 20, 1}} {
		state := make([]byte, c.state)
		for i := range state {
			state[i] = byte(dice.Uint32()) // which cannot be compressed
		}
		r, err := NewRolling(NewHeader(), math.MaxInt, func() func() *event.Event {
			return func() *event.Event {
				return &event.Event{TimeNs: 1, Kind: event.Checkpoint, State: &event.State{Data: state}}
			}
		})
		qt.Assert(t, qt.IsNil(err))
		r.partEvents = 200
		for i := range events {
			if r.Add(&events[i]); i%100 == 99 {
				r.Flush()
				r.settle()
			}
		}
		qt.Check(t, qt.Equals(len(r.parts), c.parts), qt.Commentf("a checkpoint of %d bytes", c.state))
	}
}
