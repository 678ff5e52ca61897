package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// between plays three steps between marks a, b, b, c: each allocates a buffer that stays,
// and one that stays for one step.
func between(t *testing.T, o aggregate.GrowthOptions) (*aggregate.GrowthReport, map[string]aggregate.Grown, error) {
	t.Helper()
	w := newGrower(o)
	w.alloc("before")
	var turn uint64
	for _, name := range []string{"a", "b", "b", "c"} {
		w.mark(name)
		w.alloc("stays")
		id := w.alloc("turn")
		w.free(turn)
		turn = id
	}
	w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
	r, err := w.g.Report()
	if err != nil {
		return nil, nil, err
	}
	left := make(map[string]aggregate.Grown)
	for _, one := range r.Left {
		left[one.Stack.Frames()[0].Name] = one
	}
	return r, left, nil
}

func TestBetweenMarks(t *testing.T) {
	for _, test := range []struct {
		name                string
		o                   aggregate.GrowthOptions
		from, to            string
		before, stays, turn uint64
		steps               []int64
		ended               uint64
	}{
		{"the first to the last", aggregate.GrowthOptions{}, "a", "c", 0, 3, 1, []int64{1000, 1000, 1000}, 0},
		{"the first to the end", aggregate.GrowthOptions{End: true}, "a", "", 0, 4, 1, []int64{1000, 1000, 1000, 1000}, 5},
		{"the beginning to the last", aggregate.GrowthOptions{Begin: true}, "", "c", 1, 3, 1, []int64{0, 1000, 1000, 1000}, 0},
		{"the beginning to the end", aggregate.GrowthOptions{Begin: true, End: true}, "", "", 1, 4, 1, []int64{0, 1000, 1000, 1000, 1000}, 6},
		{"two by name", aggregate.GrowthOptions{From: "a", To: "b"}, "a", "b", 0, 2, 1, []int64{1000, 1000}, 0},
		{"the first and the last of a name", aggregate.GrowthOptions{From: "b", To: "b"}, "b", "b", 0, 1, 1, []int64{1000}, 0},
		{"to the first mark", aggregate.GrowthOptions{To: "a"}, "", "a", 1, 0, 0, nil, 0},
		{"from the last mark", aggregate.GrowthOptions{From: "c"}, "c", "", 0, 1, 1, []int64{1000}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, left, err := between(t, test.o)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(r.From.Name, test.from))
			qt.Check(t, qt.Equals(r.To.Name, test.to))
			qt.Check(t, qt.Equals(left["before"].Count, test.before))
			qt.Check(t, qt.Equals(left["stays"].Count, test.stays))
			qt.Check(t, qt.Equals(left["turn"].Count, test.turn))
			qt.Check(t, qt.DeepEquals(left["stays"].Steps, test.steps))
			ended := uint64(0)
			for _, one := range left {
				ended += one.Ended.Count
			}
			qt.Check(t, qt.Equals(ended, test.ended))
		})
	}
}

func TestGrowthBetweenMarksSaysWhetherItGrowsEachTime(t *testing.T) {
	_, left, err := between(t, aggregate.GrowthOptions{})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(left["stays"].Between, aggregate.Trend{Intervals: 3, Rises: 3, Last: 3, Growing: true}))
	qt.Check(t, qt.Equals(left["turn"].Between, aggregate.Trend{Intervals: 3, Rises: 1, Last: 1}))
}

func TestAnUnknownMarkIsNamed(t *testing.T) {
	for _, test := range []struct {
		o    aggregate.GrowthOptions
		want string
	}{
		{aggregate.GrowthOptions{From: "x"}, `no mark "x": there are a, b, c`},
		{aggregate.GrowthOptions{To: "x"}, `no mark "x": there are a, b, c`},
		{aggregate.GrowthOptions{From: "c", To: "a"}, `no mark "a" after the mark "c"`},
	} {
		_, _, err := between(t, test.o)
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
	_, err := aggregate.NewGrowth(aggregate.GrowthOptions{From: "x"}).Report()
	qt.Check(t, qt.ErrorMatches(err, `no mark "x": there are no marks; .*`))
}

// TestTheOldestIsOfThoseThatWereThere: also of those that were freed after the mark.
func TestTheOldestIsOfThoseThatWereThere(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{From: "a", To: "b"})
	w.mark("a")
	since := w.now + 10
	first := w.alloc("leak")
	w.alloc("leak")
	w.mark("b")
	at := w.now
	w.free(first)
	qt.Check(t, qt.Equals(w.left(t)["leak"].OldestNs, at-since))
	qt.Check(t, qt.Equals(w.left(t)["leak"].Count, 2))
}

// TestWhatEndedBeforeTheMarkIsOver: a closed device has given back what was on it.
func TestWhatEndedBeforeTheMarkIsOver(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	w.mark("a")
	w.alloc("held")
	w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
	w.mark("b")
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(r.Left, 0))
	qt.Check(t, qt.Equals(r.Over, aggregate.Amount{Count: 1, Bytes: 1000}))
}

// TestMarksOfATime: they begin at the first allocation and go on to the end.
func TestMarksOfATime(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{EveryNs: 100})
	w.apply(event.Event{Kind: event.ProcessStart})
	for range 40 {
		w.step() // 6 events of 10 ns
		w.alloc("leak")
		w.mark("not asked for")
		w.apply(event.Event{Kind: event.Lost})
		w.apply(event.Event{Kind: event.Lost})
	}
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(r.Marks, 41))
	for i := 1; i < len(r.Marks)-1; i++ {
		qt.Check(t, qt.Equals(r.Marks[i].TimeNs-r.Marks[i-1].TimeNs, 100))
	}
	leak := w.left(t)["leak"]
	qt.Check(t, qt.Equals(leak.Count, 40))
	qt.Check(t, qt.IsTrue(leak.Between.Growing))
}

// TestManyMarksAreThinned: what they tell stays right.
func TestManyMarksAreThinned(t *testing.T) {
	const marks = 5000
	w := newGrower(aggregate.GrowthOptions{From: "mark 10", To: fmt.Sprint("mark ", marks-10)})
	for i := range marks {
		w.mark(fmt.Sprint("mark ", i))
		w.step()
		if i%2 == 0 {
			w.alloc("leak")
		}
	}
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(r.Marks) > 100 && len(r.Marks) <= 1100), qt.Commentf("%d", len(r.Marks)))
	qt.Assert(t, qt.HasLen(r.Left, 1))
	leak := r.Left[0]
	qt.Check(t, qt.Equals(leak.Count, (marks-20)/2))
	sum := int64(0)
	for _, step := range leak.Steps {
		sum += step
	}
	qt.Check(t, qt.Equals(sum, int64(leak.Bytes)))
	qt.Check(t, qt.IsTrue(leak.Between.Growing), qt.Commentf("%+v", leak.Between))
}

// TestWhatIsReplacedIsNoMore: a state that was there at the mark, and is another one now.
func TestWhatIsReplacedIsNoMore(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	state := []uint64{w.alloc("state"), w.alloc("state")}
	for _, name := range []string{"a", "b", "c"} {
		w.mark(name)
		for i, id := range state {
			state[i] = w.alloc("state")
			w.free(id)
		}
		w.alloc("leak")
	}
	left := w.left(t)
	qt.Check(t, qt.Equals(left["state"].Count, 2))
	qt.Check(t, qt.Equals(left["state"].Replaced, aggregate.Amount{Count: 2, Bytes: 2000}))
	qt.Check(t, qt.Equals(left["state"].Between, aggregate.Trend{Intervals: 2}))
	qt.Check(t, qt.DeepEquals(left["state"].Steps, []int64{0, 0}))
	qt.Check(t, qt.Equals(left["leak"].Replaced, aggregate.Amount{}))
}
