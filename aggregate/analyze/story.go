package analyze

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Story is the moment of a recording that views show first. Its zero value is none.
type Story struct {
	Kind StoryKind
	// Point is the moment: that of an event or, if its Number is 0, the last one at that time.
	memory.Point
	// Region and Devices are those to look at.
	Region  string
	Devices []int
}

// A StoryKind is why a moment is the story.
type StoryKind string

// The kinds of stories.
const (
	// StoryFailure is the last failed allocation.
	StoryFailure StoryKind = "failure"
	// StoryLeak is the last allocation of the process with the largest leak, when all of that is live, or a peak of
	// its region after that.
	StoryLeak StoryKind = "leak"
	// StoryPeak is the peak of DRAM or L1 that is nearest to its capacity.
	StoryPeak StoryKind = "peak"
)

// StoryOf returns the story of a recording that begins at a point: a failure, else a leak, else a peak. The
// state is that at the end.
func StoryOf(s *aggregate.State, begin memory.Point) (story Story) {
	snap, peaks := s.Snapshot(), s.Index().Peaks
	if failures := snap.Failures; len(failures) > 0 {
		last := &failures[len(failures)-1]
		if last.Number >= begin.Number {
			return Story{StoryFailure, memory.Point{Number: last.Number, TimeNs: last.TimeNs}, last.Region, last.Devices}
		}
	}
	survivors, _ := s.Survivors()
	for _, leak := range LeaksOf(survivors) { // the largest is first
		if leak.WorkedToNs < begin.TimeNs {
			continue
		}
		at := memory.Point{TimeNs: leak.WorkedToNs}
		// A later peak of the only process has all of it, too, and what a late attach had not read yet.
		alone := len(snap.Processes) == 1
		for _, p := range peaks {
			if alone && p.Region == leak.Region && slices.Contains(leak.Devices, p.Device) && p.TimeNs > at.TimeNs {
				at = p.Point
			}
		}
		return Story{StoryLeak, at, leak.Region.String(), leak.Devices}
	}
	most := -1.0
	for _, p := range peaks {
		share := 0.0 // of other regions, and if the capacity is not known
		if p.CapacityBytes > 0 && (p.Region == event.DRAM || p.Region == event.L1) {
			share = float64(p.Bytes) / float64(p.CapacityBytes)
		}
		if p.Number >= begin.Number && share > most {
			most, story = share, Story{StoryPeak, p.Point, p.Region.String(), []int{p.Device}}
		}
	}
	return story
}
