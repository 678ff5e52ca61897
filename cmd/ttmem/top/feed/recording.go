package feed

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/top"
	"ttmem/tracer/event"
)

// A Recording shows the moments of a file.
type Recording struct {
	*top.Live
	file        *source.Recording
	first, last memory.Point
	end         *aggregate.State
	survivors   []memory.Survivors
	stops       []top.Stop
	// story is the moment that tells most; zero if there is none.
	story memory.Point
}

// OpenRecording makes a view show the moment of a file that tells most: the last failed allocation, else the peak
// of the region with the largest leak, else the peak that is nearest to its capacity. It returns the summary of
// the file.
func OpenRecording(o *source.Options, view *top.Options) (*source.Summary, error) {
	r := &Recording{Live: top.NewLive(o.File), file: &source.Recording{Path: o.File, PIDs: o.PIDs}}
	if len(o.PIDs) > 0 {
		r.file.Whole = true // their events are numbered from the beginning
	}
	summary, err := r.read()
	if err != nil {
		return nil, cmp.Or(o.Missing(), err)
	}
	view.Source, view.Recording, view.At = r, r, cmp.Or(r.story, r.last)
	if err := r.Seek(view.At); err != nil {
		return nil, err
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
	r.addPeaks(x.Peaks)
	for _, mark := range x.Marks {
		r.add(top.StopMark, memory.Point{Number: mark.Number, TimeNs: mark.TimeNs}, "mark "+mark.Name)
	}
	for _, f := range x.Failures {
		r.add(top.StopFailure, f.Point, fmt.Sprintf("failed allocation, PID %d", f.PID))
		if f.Number > r.first.Number {
			r.story = f.Point
		}
	}
	slices.SortStableFunc(r.stops, func(a, b top.Stop) int { return cmp.Compare(a.Number, b.Number) })
	return summary, nil
}

func (r *Recording) add(kind top.StopKind, at memory.Point, name string) {
	if at.Number > r.first.Number {
		r.stops = append(r.stops, top.Stop{Point: at, Kind: kind, Name: name})
	}
}

// addPeaks adds the peaks, those of several chips at the same time as one, and finds the fullest
// one.
func (r *Recording) addPeaks(peaks []memory.PeakPoint) {
	for _, group := range page.Alike(peaks, func(a, b memory.PeakPoint) bool { return a.Point == b.Point && a.Region == b.Region }) {
		chips := page.Each(group, func(p memory.PeakPoint) int { return p.Device })
		r.add(top.StopPeak, group[0].Point, fmt.Sprintf("peak of %s, %s", group[0].Region, short(chips)))
	}
	leak := r.largestLeak()
	most := -1.0
	for _, p := range r.end.RegionPeaks() {
		share := float64(p.Bytes) / float64(max(1, p.CapacityBytes))
		leaks := leak != nil && p.Region == leak.Region && slices.Contains(leak.Devices, p.Device)
		if leaks {
			share++ // before the others
		}
		at := slices.IndexFunc(peaks, func(q memory.PeakPoint) bool { return q.Device == p.Device && q.Region == p.Region })
		if at >= 0 && peaks[at].Number > r.first.Number && p.CapacityBytes > 0 && share > most &&
			(leaks || p.Region == event.DRAM || p.Region == event.L1) {
			most, r.story = share, peaks[at].Point
		}
	}
}

// largestLeak is the call site that leaked most; nil if none did.
func (r *Recording) largestLeak() (largest *analyze.Verdict) {
	sites := analyze.Leaks(r.end, analyze.LeakOptions{}).Sites
	for i, v := range sites {
		if v.Class == analyze.Leaked && (len(r.file.PIDs) == 0 || slices.Contains(r.file.PIDs, v.PID)) && (largest == nil || v.Bytes > largest.Bytes) {
			largest = &sites[i]
		}
	}
	return largest
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

// Stops are the peaks, marks and failures.
func (r *Recording) Stops() []top.Stop { return r.stops }

// Timelines are those of the whole file.
func (r *Recording) Timelines() []memory.RegionTimeline { return r.end.Timelines() }

// Losses are those of the whole file.
func (r *Recording) Losses() memory.AllLosses { return r.end.Snapshot().Losses(false, nil) }

// Survivors are those of the whole file, at each moment.
func (r *Recording) Survivors() []memory.Survivors { return r.survivors }

// Seek shows a moment.
func (r *Recording) Seek(at memory.Point) error {
	if at.Number == r.last.Number && at.TimeNs >= r.last.TimeNs { // the end of a process comes after its last event
		r.Show(r.end, nil, 0)
		return nil
	}
	m := source.Moment{Kind: source.AtPoint, Point: at}
	_, err := r.file.StateAt(m, func(s *source.State, _ source.Regions) {
		r.Show(s.State, r.file.Reached, r.file.BeforeNs)
	})
	return err
}
