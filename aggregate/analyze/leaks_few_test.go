package analyze_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/tracer/event"
)

// grow keeps so many buffers at each site in each step.
func (w *story) grow(steps, each int, sites ...string) {
	for range steps {
		w.step()
		for _, site := range sites {
			for range each {
				w.alloc(site)
			}
		}
	}
}

// TestWhatOnlyGrewIsNotCalledStable: a list that is too short to be judged is said to grow.
func TestWhatOnlyGrewIsNotCalledStable(t *testing.T) {
	const site = "ttnn.list"
	for name, test := range map[string]struct {
		play  func(w *story)
		class analyze.Class
		count uint64
	}{
		"2 steps":             {func(w *story) { w.grow(2, 1, site) }, analyze.Stable, 2}, // one distance is no trend
		"3 steps":             {func(w *story) { w.grow(3, 1, site) }, analyze.Undecided, 3},
		"5 steps":             {func(w *story) { w.grow(5, 1, site) }, analyze.Undecided, 5},
		"15 steps":            {func(w *story) { w.grow(15, 1, site) }, analyze.Undecided, 15},
		"16 steps":            {func(w *story) { w.grow(16, 1, site) }, analyze.Leaked, 16},
		"17 steps":            {func(w *story) { w.grow(17, 1, site) }, analyze.Leaked, 17},
		"two each step":       {func(w *story) { w.grow(7, 2, site) }, analyze.Undecided, 14},
		"many each step":      {func(w *story) { w.grow(3, 5, site) }, analyze.Undecided, 15},
		"several sites":       {func(w *story) { w.grow(6, 1, "before", site, "after") }, analyze.Undecided, 6},
		"after many weights":  {func(w *story) { w.loads(200); w.grow(4, 1, site) }, analyze.Undecided, 4},
		"work after the last": {func(w *story) { w.grow(12, 1, site); w.grow(2, 0) }, analyze.Undecided, 12},
		"device closed":       {func(w *story) { w.grow(12, 1, site); w.close() }, analyze.Undecided, 12},
		"process ended":       {func(w *story) { w.grow(12, 1, site); w.exit() }, analyze.Undecided, 12},
		"every other is freed": {func(w *story) {
			for range 12 {
				w.step()
				w.alloc(site)
				w.free(w.alloc(site))
			}
		}, analyze.Undecided, 12},
		"results and nothing else": {func(w *story) {
			w.loads(2)
			for range 5 {
				w.alloc(site)
			}
		}, analyze.Undecided, 5},
		"all at the start":   {func(w *story) { w.grow(1, 12, site); w.grow(12, 0) }, analyze.Stable, 12},
		"at the first steps": {func(w *story) { w.grow(4, 1, site); w.grow(12, 0) }, analyze.Stable, 4},
		"a list that is full": {func(w *story) {
			var list []uint64
			for i := range 40 {
				w.step()
				if list = append(list, w.alloc(site)); i >= 8 {
					w.free(list[i-8])
				}
			}
		}, analyze.Stable, 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory()
			test.play(w)
			v := w.sites(analyze.LeakOptions{})[site]
			qt.Check(t, qt.Equals(v.Class, test.class), qt.Commentf("%+v", v.Run))
			qt.Check(t, qt.Equals(v.Count, test.count))
			qt.Check(t, qt.Equals(v.Grows, test.class != analyze.Stable))
		})
	}
}

// TestWeightsAloneDoNotGrow: a program that only loads weights may be about to use them.
func TestWeightsAloneDoNotGrow(t *testing.T) {
	w := newStory()
	w.loads(12)
	qt.Check(t, qt.Equals(w.sites(analyze.LeakOptions{})["weight"].Class, analyze.Stable))
}

// TestGrowthInAWatchIsNamed: of a process that ran before, each new buffer that stays counts, and not
// what it had.
func TestGrowthInAWatchIsNamed(t *testing.T) {
	old := make([]uint64, 8)
	for name, test := range map[string]struct {
		before, during func(w *story)
		class          analyze.Class
		fresh          uint64
	}{
		"a full ring that is attached to": {func(w *story) {
			w.grow(1, 0)
			for i := range old {
				w.next++
				old[i] = w.next
				w.apply(event.Event{Kind: event.Alloc, BufferID: w.next, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, BeforeAttach: true})
			}
		}, func(w *story) {
			for _, id := range old[:5] {
				w.step()
				w.alloc("list")
				w.free(id)
			}
		}, analyze.Stable, 5},
		"one buffer": {func(w *story) { w.grow(1, 1, "list") }, func(w *story) { w.grow(1, 1, "list") }, analyze.Undecided, 1},
		"of a long list": {func(w *story) { w.grow(1, 100, "list"); w.grow(30, 0) }, func(w *story) { w.grow(2, 1, "list") },
			analyze.Undecided, 2},
		"and then no more": {func(w *story) { w.grow(3, 0) }, func(w *story) { w.grow(1, 5, "list"); w.grow(9, 0) }, analyze.Stable, 5},
		"none":             {func(w *story) { w.grow(3, 2, "list"); w.grow(30, 0) }, func(w *story) { w.grow(3, 0) }, analyze.Stable, 0},
		"a list that is full": {func(w *story) { w.grow(1, 0) }, func(w *story) {
			before := w.alloc("list")
			for range 9 {
				w.step()
				next := w.alloc("list")
				w.free(before)
				before = next
			}
		}, analyze.Stable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory()
			test.before(w)
			*w = *w.joined()
			from := w.now
			w.state.FreshSince(from)
			test.during(w)
			v := w.sites(analyze.LeakOptions{WatchedFromNs: from})["list"]
			qt.Check(t, qt.Equals(v.Class, test.class), qt.Commentf("%+v", v.Run))
			qt.Check(t, qt.Equals(v.Fresh.Count, test.fresh))
		})
	}
}

// TestFewBetweenMarks: a site that grew to the last of several marks, but not from each to the next,
// is not stable.
func TestFewBetweenMarks(t *testing.T) {
	w := newStory()
	w.step()
	w.state.FollowFrom(w.now)
	times := []uint64{w.now}
	for i := range 8 {
		w.step()
		if i%2 == 1 {
			w.alloc("list")
		}
		if i < 4 {
			w.alloc("cache")
		}
		times = append(times, w.now)
		w.state.FollowTo(w.now)
	}
	sites := w.sites(analyze.LeakOptions{Times: times})
	qt.Check(t, qt.Equals(sites["list"].Class, analyze.Undecided))
	qt.Check(t, qt.Equals(sites["cache"].Class, analyze.Stable))
}

// TestRetainedMemoryThatGrows: memory of the runtime is no leak, and it is known whether it grows.
func TestRetainedMemoryThatGrows(t *testing.T) {
	for name, grows := range map[string]bool{"grows": true, "has stopped": false} {
		t.Run(name, func(t *testing.T) {
			w := newStory()
			w.stacks["cache"] = event.StackOf([]event.Frame{
				{Kind: event.Native, Name: "ttnn::device_operation::detail::create_and_cache_mesh_workload"}, {Kind: event.Python, Name: "cache"},
			})
			w.grow(20, 1, "cache")
			if !grows {
				w.grow(20, 0)
			}
			v := w.sites(analyze.LeakOptions{})["cache"]
			qt.Check(t, qt.Equals(v.Class, analyze.Retained))
			qt.Check(t, qt.Equals(v.Grows, grows))
		})
	}
}
