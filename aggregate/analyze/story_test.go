package analyze_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestTheStory is a failure, else a leak when all of it is live, else the peak that is nearest to its
// capacity.
func TestTheStory(t *testing.T) {
	w := newStory()
	story := func() analyze.Story { return analyze.StoryOf(w.state, memory.Point{}) }
	qt.Check(t, qt.Equals(story().Kind, ""))

	capacities := [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 10, BytesPerBank: 4000}}
	w.apply(event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{0}, Open: &event.Open{Capacities: capacities}})
	loads := w.state.Number() + 20
	w.loads(20) // the peak of the region, before the leak
	w.free(20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
	peak := story()
	qt.Check(t, qt.DeepEquals(peak, analyze.Story{Kind: analyze.StoryPeak, Point: memory.Point{Number: loads, TimeNs: peak.TimeNs}, Region: "DRAM", Devices: []int{0}}))
	qt.Check(t, qt.Equals(analyze.StoryOf(w.state, memory.Point{Number: loads + 1}).Kind, "")) // it was before

	for range 16 {
		w.step()
		w.alloc("leak")
	}
	leak := analyze.Story{Kind: analyze.StoryLeak, Point: memory.Point{TimeNs: w.now}, Region: "DRAM", Devices: []int{0}}
	w.close()
	w.exit()
	qt.Check(t, qt.DeepEquals(story(), leak))
	qt.Check(t, qt.DeepEquals(analyze.StoryOf(w.state, memory.Point{TimeNs: leak.TimeNs + 1}), peak))

	w.apply(event.Event{Kind: event.AllocFailed, Region: event.L1, Devices: []int{0, 1}})
	failure := memory.Point{Number: w.state.Number(), TimeNs: w.now}
	qt.Check(t, qt.DeepEquals(story(), analyze.Story{Kind: analyze.StoryFailure, Point: failure, Region: "L1", Devices: []int{0, 1}}))
}
