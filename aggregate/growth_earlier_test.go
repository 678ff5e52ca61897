package aggregate_test

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// earlier sets a mark of before the beginning, and began ends what there was before.
func (w *grower) earlier(name string) {
	w.apply(event.Event{Kind: event.Mark, Cause: name, BeforeAttach: true})
}

func (w *grower) began() {
	w.now += 10
	w.g.Apply(&event.Event{Kind: event.Total, TimeNs: w.now})
}

// joined plays what who joins later is told: what lives, with two marks of before among
// it, and then steps in which something leaks and a state is replaced.
func joined(o aggregate.GrowthOptions) *grower {
	w := newGrower(o)
	for range 20 {
		w.alloc("weight")
	}
	w.earlier("old")
	state := w.alloc("state")
	w.alloc("leak")
	w.earlier("older than the watch")
	w.began()
	for range 24 {
		w.step()
		next := w.alloc("state")
		w.free(state)
		state = next
		w.alloc("leak")
	}
	return w
}

// TestMarksOfBeforeChooseNoRange: who names none of them is told what there is without
// marks, or between those that were set meanwhile.
func TestMarksOfBeforeChooseNoRange(t *testing.T) {
	for _, test := range []struct {
		name     string
		o        aggregate.GrowthOptions
		marks    []string // set meanwhile
		from, to string
		between  int // marks
	}{
		{"none", aggregate.GrowthOptions{}, nil, "", "", 0},
		{"none, from the beginning", aggregate.GrowthOptions{Begin: true}, nil, "", "", 0},
		{"two meanwhile", aggregate.GrowthOptions{}, []string{"a", "b"}, "a", "b", 2},
		{"one meanwhile, from the beginning", aggregate.GrowthOptions{Begin: true}, []string{"a"}, "", "a", 2},
		{"from one of before", aggregate.GrowthOptions{From: "old"}, nil, "old", "", 2},
		{"from one of before, and one meanwhile", aggregate.GrowthOptions{From: "old"}, []string{"a"}, "old", "a", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := joined(test.o)
			for _, name := range test.marks {
				w.alloc("more")
				w.mark(name)
			}
			w.step()
			r, err := w.g.Report()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(r.From.Name, test.from))
			qt.Check(t, qt.Equals(r.To.Name, test.to))
			qt.Check(t, qt.HasLen(r.Marks, test.between))
			qt.Check(t, qt.Equals(r.Earlier, test.from == "old"))
			if !r.Earlier {
				qt.Check(t, qt.Equals(r.EarlierMarks, 2))
			}
		})
	}
}

// TestSinceAMarkOfBeforeOnlyWhatHappensTells: what was there when the watch began is no
// sign of growth, as it may have taken the place of what was freed.
func TestSinceAMarkOfBeforeOnlyWhatHappensTells(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{From: "old"})
	w.alloc("kept")
	w.earlier("old")
	var ring []uint64
	for range 40 { // each of which took the place of one that nobody tells of
		ring = append(ring, w.alloc("ring"))
	}
	for range 8 {
		w.alloc("leak")
	}
	w.began()
	qt.Check(t, qt.HasLen(w.growing(t), 0))
	for i := range 4 {
		w.alloc("leak")
		w.free(ring[i])
		ring[i] = w.alloc("ring")
	}
	qt.Check(t, qt.HasLen(w.growing(t), 0)) // four more are too few
	for i := range 20 {
		w.alloc("leak")
		w.free(ring[i])
		ring[i] = w.alloc("ring")
	}
	qt.Check(t, qt.DeepEquals(w.growing(t), []string{"leak"}))
	left := w.left(t)
	qt.Check(t, qt.Equals(left["leak"].Count, 32))
	qt.Check(t, qt.Equals(left["ring"].Count, 40))
	qt.Check(t, qt.Equals(left["kept"].Count, 0))
}

// TestAMarkOfBeforeIsNoEnd: what was there at it is not known, and nothing that comes
// makes it known.
func TestAMarkOfBeforeIsNoEnd(t *testing.T) {
	for _, test := range []struct {
		o    aggregate.GrowthOptions
		over bool
	}{
		{aggregate.GrowthOptions{To: "b"}, true},
		{aggregate.GrowthOptions{Begin: true, To: "b"}, true},
		{aggregate.GrowthOptions{From: "a", To: "b"}, true},
		{aggregate.GrowthOptions{From: "a", To: "a", ToNth: 2}, false},
		{aggregate.GrowthOptions{From: "c", To: "b"}, false},
		{aggregate.GrowthOptions{From: "a", To: "c"}, false},
	} {
		w := newGrower(test.o)
		w.earlier("a")
		w.earlier("b")
		w.began()
		qt.Check(t, qt.Equals(w.g.Over(), test.over), qt.Commentf("%+v", test.o))
		for _, name := range []string{"a", "b", "c", "b"} {
			w.alloc("more")
			w.mark(name)
		}
		_, err := w.g.Report()
		var earlier *aggregate.EarlierMarkError
		qt.Check(t, qt.Equals(errors.As(err, &earlier), test.over), qt.Commentf("%+v: %v", test.o, err))
		qt.Check(t, qt.Equals(err != nil, test.over), qt.Commentf("%+v: %v", test.o, err))
	}
}

// TestMarksOfATimeAreNotOfBefore: --interval takes no other marks.
func TestMarksOfATimeAreNotOfBefore(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{EveryNs: 100})
	w.earlier("old")
	w.began()
	for range 40 {
		w.step()
	}
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(r.From.Name, "every"))
	qt.Check(t, qt.Equals(r.EarlierMarks, 0))
}
