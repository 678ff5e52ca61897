package feed

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/top"
)

// A Recording shows the moments of a file.
type Recording struct {
	*top.Live
	file        *source.Recording
	first, last memory.Point
	end         *aggregate.State
	survivors   []memory.Survivors
	stops       []top.Stop
}

// OpenRecording makes a view show the story of a file, and returns the summary of the file.
func OpenRecording(o *source.Options, view *top.Options) (*source.Summary, error) {
	r := &Recording{Live: top.NewLive(o.File), file: &source.Recording{Path: o.File, PIDs: o.PIDs}}
	if len(o.PIDs) > 0 {
		r.file.Whole = true // their events are numbered from the beginning
	}
	summary, err := r.read()
	if err != nil {
		return nil, cmp.Or(o.Missing(), err)
	}
	story := analyze.StoryOf(r.end, r.first)
	view.Source, view.Recording, view.At = r, r, cmp.Or(story.Point, r.last)
	if err := r.Seek(view.At); err != nil {
		return nil, err
	}
	if story.Kind == analyze.StoryLeak {
		view.At.Number = r.Present(0).Number
		r.add(top.StopLeak, view.At, fmt.Sprintf("largest leak of %s, %s", story.Region, short(story.Devices)))
		r.sort()
	}
	r.file.Quiet = true // the view has the terminal
	return summary, nil
}

// read finds the moments of the file.
func (r *Recording) read() (*source.Summary, error) {
	end, summary, err := r.file.End()
	if err != nil {
		return nil, err
	}
	if r.first, err = r.file.Begin(); err != nil {
		return nil, err
	}
	r.end, r.last = end, memory.Point{Number: end.Number(), TimeNs: end.Now()}
	r.survivors, _ = end.Survivors()
	x := end.Index()
	r.first.Number = max(r.first.Number, x.Begin.Number)
	for _, peaks := range page.Alike(x.Peaks, func(a, b memory.PeakPoint) bool { return a.Point == b.Point && a.Region == b.Region }) {
		chips := page.Each(peaks, func(p memory.PeakPoint) int { return p.Device })
		r.add(top.StopPeak, peaks[0].Point, fmt.Sprintf("peak of %s, %s", peaks[0].Region, short(chips)))
	}
	for _, mark := range x.Marks {
		r.add(top.StopMark, memory.Point{Number: mark.Number, TimeNs: mark.TimeNs}, "mark "+mark.Name)
	}
	for _, f := range x.Failures {
		r.add(top.StopFailure, f.Point, fmt.Sprintf("failed allocation, PID %d", f.PID))
	}
	r.sort()
	return summary, nil
}

func (r *Recording) sort() {
	slices.SortStableFunc(r.stops, func(a, b top.Stop) int { return cmp.Compare(a.Number, b.Number) })
}

func (r *Recording) add(kind top.StopKind, at memory.Point, name string) {
	if at.Number > r.first.Number {
		r.stops = append(r.stops, top.Stop{Point: at, Kind: kind, Name: name})
	}
}

// short writes chips so that the line with a moment has room for them.
func short(chips []int) string {
	if len(chips) == 1 {
		return page.Chips(chips)
	}
	return "chips " + page.ShortChips(chips, 12)
}

// Span is the first moment and the last one.
func (r *Recording) Span() (first, last memory.Point) { return r.first, r.last }

// Stops are the peaks, marks and failures, and the largest leak if that is the story.
func (r *Recording) Stops() []top.Stop { return r.stops }

// Timelines are those of the whole file.
func (r *Recording) Timelines() []memory.RegionTimeline { return r.end.Timelines() }

// Losses are those of the whole file.
func (r *Recording) Losses() memory.AllLosses { return r.end.Totals().Losses(false, nil) }

// Survivors are those of the whole file, at each moment.
func (r *Recording) Survivors() []memory.Survivors { return r.survivors }

// Seek shows a moment.
func (r *Recording) Seek(at memory.Point) error {
	if at.Number == r.last.Number && at.TimeNs >= r.last.TimeNs { // the end of a process comes after its last event
		r.Show(r.end, nil, 0)
		return nil
	}
	m := moment.Moment{Kind: moment.AtPoint, Point: at}
	_, err := r.file.StateAt(m, func(s *source.State, _ moment.Regions) {
		r.Show(s.State, s.Event, s.BeforeNs)
	})
	return err
}
