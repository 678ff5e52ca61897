package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// between is what a State knows of the survivors between two moments.
func between(s *aggregate.State, times []uint64) string {
	list, others, over := s.Between(times)
	var lines []string
	for _, v := range list {
		lines = append(lines, fmt.Sprintf("%d %p %d %d %v %v %v %d %v %v", v.PID, v.Stack, v.Region, v.Layout, v.Devices, v.PerCore,
			v.Amount, v.AgeNs, v.Births, v.Replaced))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + fmt.Sprint("\nothers ", others, " over ", over)
}

// TestMarksFromBeforeAreKnown: a State that is asked afterwards, and one that is made of its
// checkpoint, know of two marks what a State knows that followed them.
func TestMarksFromBeforeAreKnown(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		asked, followed := aggregate.New(), aggregate.New()
		var marks []uint64
		var from, to uint64
		for now := uint64(1); now < 3000; now++ {
			e := fullEvent(r, now)
			if now%97 == 0 {
				e = event.Event{TimeNs: now, Kind: event.Mark, Cause: "mark"} // of root
				marks = append(marks, now)
			} else if e.Kind == event.Mark {
				continue
			}
			asked.Apply(&e)
			if followed.Apply(&e); e.Kind == event.Mark {
				switch {
				case len(marks) == 5:
					from = now
					followed.FollowFrom(now)
				case from > 0 && to == 0 && r.IntN(3) == 0:
					to = now
					followed.FollowTo(now)
				}
			}
		}
		times := slices.DeleteFunc(marks, func(at uint64) bool { return at < from || at > to })
		want := between(followed, times)
		for _, s := range []*aggregate.State{asked, restored(t, asked)} {
			for _, m := range s.Marks() {
				qt.Assert(t, qt.IsTrue(s.KnowsAt(&m)))
			}
			s.FollowFrom(from)
			s.FollowTo(to)
			qt.Assert(t, qt.Equals(between(s, times), want), qt.Commentf("seed %d, %d to %d", seed, from, to))
		}
	}
}

// TestMarksOfAUserCostOthersNothing: one user has marks all the time, and buffers that live
// across them; the other's two marks stay known.
func TestMarksOfAUserCostOthersNothing(t *testing.T) {
	start := func(pid, uid int) event.Event {
		return event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid}
	}
	s := after(start(7, 1000), start(8, 2000))
	now := uint64(1)
	apply := func(e event.Event) {
		now++
		e.TimeNs = now
		s.Apply(&e)
	}
	mark := func(uid int) uint64 {
		apply(event.Event{Kind: event.Mark, Cause: "mark", UID: uid})
		return now
	}
	from := mark(1000)
	apply(tensor(0, 7, 1, 0))
	to := mark(1000)
	apply(free(0, 7, 1))
	for id := range uint64(70_000) {
		apply(from8(id))
		mark(2000)
		apply(free(0, 8, id))
	}
	mine := aggregate.New()
	mine.Apply(s.Freeze(func(uid int) bool { return uid == 1000 })())
	marks := mine.Marks()
	qt.Assert(t, qt.HasLen(marks, 2))
	qt.Check(t, qt.IsTrue(mine.KnowsAt(&marks[0]) && mine.KnowsAt(&marks[1])))
	mine.FollowFrom(from)
	mine.FollowTo(to)
	list, _, _ := mine.Between([]uint64{from, to})
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Amount, memory.Amount{Count: 1, Bytes: 540672}))

	// the other has the newest
	theirs := aggregate.New()
	theirs.Apply(s.Freeze(func(uid int) bool { return uid == 2000 })())
	marks = theirs.Marks()
	qt.Check(t, qt.IsTrue(theirs.KnowsAt(&marks[len(marks)-1])))
	// root does not know what the process of one had at marks of the other
	all := s.Marks()
	qt.Check(t, qt.IsFalse(s.KnowsAt(&all[0])))
}

// from8 is a buffer of process 8, of one of four call sites.
func from8(id uint64) event.Event { return from(int(id%4), tensor(0, 8, id, 0)) }

// TestThePastIsBounded: the oldest marks are forgotten, and that is known.
func TestThePastIsBounded(t *testing.T) {
	s := aggregate.New()
	now := uint64(0)
	apply := func(e event.Event) {
		now++
		e.TimeNs = now
		s.Apply(&e)
	}
	for i := range uint64(400) { // 200 call sites, of which each buffer lives across a mark
		for id := range uint64(200) {
			e := tensor(0, 7, i*200+id, 0)
			e.Stack = event.NewStack(id+100, nil)
			apply(e)
		}
		apply(event.Event{Kind: event.Mark, Cause: "mark"})
		for id := range uint64(200) {
			apply(free(0, 7, i*200+id))
		}
	}
	marks := s.Marks()
	qt.Check(t, qt.IsFalse(s.KnowsAt(&marks[0])))
	qt.Check(t, qt.IsTrue(s.KnowsAt(&marks[len(marks)-100])))
	again := restored(t, s)
	for i := range marks {
		qt.Check(t, qt.Equals(again.KnowsAt(&marks[i]), s.KnowsAt(&marks[i])))
	}
}
