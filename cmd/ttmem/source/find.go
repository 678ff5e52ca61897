package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// find returns where a moment other than the end is: for peaks, several stops in order. A missing
// one may be in a damaged part.
func (r *Recording) find(m Moment) ([]stop, error) {
	stops, err := r.lookUp(m)
	if err != nil && r.summary != nil && r.summary.Failed {
		return nil, fmt.Errorf("%w; %s", err, strings.Join(r.summary.Notes, "; "))
	}
	return stops, err
}

func (r *Recording) lookUp(m Moment) ([]stop, error) {
	if err := ReadOnce(r.Path); err != nil {
		return nil, err
	}
	if len(r.PIDs) > 0 && !r.Whole {
		r.Whole, r.end = true, nil
	}
	end, _, err := r.End()
	if err != nil {
		return nil, err
	}
	if _, err := r.Begin(); err != nil {
		return nil, err
	}
	x := end.Index()
	switch m.Kind {
	case End, Unfreed:
		return []stop{r.endStop()}, nil
	case Peak:
		return r.findPeaks(&m, x.Peaks)
	case Failure, Mark:
		at, err := r.findPoint(&m, &x)
		return []stop{{Point: at, of: EveryRegion}}, err
	case AtPoint:
		return []stop{{Point: m.Point, timed: m.Number == 0, of: EveryRegion}}, nil
	case After:
		if length := end.Now() - r.begin.TimeNs; uint64(m.Time) > length {
			return nil, fmt.Errorf("%s has nothing %v after its first event: the last is at %s", r.name(), m.Time, time.Duration(length).Round(time.Microsecond))
		}
		return []stop{{Point: memory.Point{TimeNs: r.begin.TimeNs + uint64(m.Time)}, timed: true, of: EveryRegion}}, nil
	}
	return []stop{{Point: memory.Point{Number: max(r.begin.Number, x.Begin.Number)}, of: EveryRegion}}, nil
}

// findSpan returns where a span begins, and where it ends: for a peak, with several stops in order.
func (r *Recording) findSpan(span Span) (from stop, to []stop, err error) {
	first, err := r.find(span.From)
	if err == nil {
		to, err = r.find(span.To)
	}
	if err != nil {
		return stop{}, nil, err
	}
	if len(first) == 0 || len(to) == 0 {
		return stop{}, nil, fmt.Errorf("nothing was allocated in %s: give another moment than peak", r.name())
	}
	from = first[0]
	if span.From.Kind != Begin && !span.To.AtEnd() {
		to = slices.DeleteFunc(to, func(s stop) bool { return !from.isBefore(&s) })
	}
	if len(to) == 0 {
		return stop{}, nil, span.Empty()
	}
	return from, to, nil
}

// A place is a region of a chip.
type place struct {
	device int
	region event.Region
}

func (r *Recording) findPeaks(m *Moment, peaks []memory.PeakPoint) (stops []stop, err error) {
	numbers := make(map[place]uint64)
	for _, one := range peaks {
		if m.Peaks != nil && !m.Peaks(one.Device, one.Region) {
			continue
		}
		if one.Number < r.begin.Number {
			r.summary.Notes = append(r.summary.Notes, fmt.Sprintf("the peak of %s of chip %d lies before %s begins and is not shown; `ttmem peak` lists its call sites",
				one.Region, one.Device, r.name()))
			continue
		}
		numbers[place{one.Device, one.Region}] = one.Number
		if slices.ContainsFunc(stops, func(s stop) bool { return s.Number == one.Number }) {
			continue
		}
		stops = append(stops, stop{Point: one.Point, of: func(device int, region event.Region) bool {
			if region == event.CB {
				region = event.L1 // circular buffers are part of L1
			}
			return numbers[place{device, region}] == one.Number
		}})
	}
	if len(peaks) > 0 && len(stops) == 0 {
		return nil, fmt.Errorf("the peak of each region lies before %s begins; `ttmem peak %s` lists its call sites", r.name(), r.name())
	}
	slices.SortFunc(stops, func(a, b stop) int { return cmp.Compare(a.Number, b.Number) })
	return stops, nil
}

// findPoint returns where a mark or a failure is.
func (r *Recording) findPoint(m *Moment, x *memory.Index) (memory.Point, error) {
	from := x.MarksFrom
	if m.Kind == Failure {
		from = x.FailuresFrom
	}
	list := r.points(m, x)
	newest := m.Last && m.Nth == 0 && len(list) > 0 && list[len(list)-1].Number > from
	if from > r.begin.Number && !newest {
		if err := r.scan(m, x); err != nil {
			return memory.Point{}, err
		}
		list = r.points(m, x)
	}
	if nth := m.which(len(list)); nth <= len(list) {
		return list[nth-1], nil
	}
	return memory.Point{}, r.missing(m, x, len(list))
}

// points returns the marks of the file with the name, or its failures. One may be the last event before
// the file's first checkpoint, whose state is that at the mark.
func (r *Recording) points(m *Moment, x *memory.Index) []memory.Point {
	return slices.DeleteFunc(m.points(x), func(p memory.Point) bool { return p.Number < r.begin.Number })
}

// points returns the marks with the name, or the failures.
func (m *Moment) points(x *memory.Index) (list []memory.Point) {
	for _, failure := range x.Failures {
		if m.Kind == Failure {
			list = append(list, failure.Point)
		}
	}
	for _, mark := range x.Marks {
		if m.Kind == Mark && m.Name == mark.Name {
			list = append(list, memory.Point{Number: mark.Number, TimeNs: mark.TimeNs})
		}
	}
	return list
}

// Find returns where the beginning or a mark is.
func (m *Moment) Find(x *memory.Index) (at memory.Point, found bool) {
	list := m.points(x)
	if nth := m.which(len(list)); nth <= len(list) {
		return list[nth-1], true
	}
	return memory.Point{}, m.Kind == Begin
}

// missing returns an error that lists the existing marks or failures; found is the number of
// those with the name.
func (r *Recording) missing(m *Moment, x *memory.Index, found int) error {
	switch {
	case m.Kind == Failure && found == 0:
		return fmt.Errorf("no allocation failed in %s: give another moment, such as peak", r.name())
	case m.Kind == Failure:
		return fmt.Errorf("no %s in %s: %s failed", m.Text, r.name(), page.Count(uint64(found), "allocation"))
	}
	if _, err := time.ParseDuration(m.Name + "s"); err == nil {
		return fmt.Errorf("no mark %[1]s in %[2]s: a time has a unit: write %[1]ss for seconds, or %[1]sms", m.Name, r.name())
	}
	earlier := func(one memory.Mark) bool { return one.Number < r.begin.Number }
	if found == 0 && len(m.points(x)) > 0 {
		return fmt.Errorf("no mark %s in %s: the mark %s lies before %s begins", m.Text, r.name(), page.Clean(m.Name), r.name())
	}
	return m.Missing(&memory.Index{Marks: slices.DeleteFunc(slices.Clone(x.Marks), earlier)}, In(r.name()))
}

// Missing returns an error for a mark that is not among those of a place, such as "in model.ttmem".
func (m *Moment) Missing(x *memory.Index, place string) error {
	return fmt.Errorf("no mark %s %s: %s", m.MarkName(), place, m.OtherMarks(x))
}

// OtherMarks says which marks there are, if the one of the moment is not among them.
func (m *Moment) OtherMarks(x *memory.Index) string {
	found, names := len(m.points(x)), []string(nil)
	for _, mark := range x.Marks {
		if name := page.Clean(mark.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case found == 1:
		return "there is 1 of that name"
	case found > 0:
		return fmt.Sprintf("there are %d of that name", found)
	case names == nil:
		return "there are no marks; `ttmem mark NAME` sets one while a program runs"
	}
	return "there are " + page.Some(names, "mark")
}

// scan reads all marks and failures of the file: the state at the end has only the newest.
func (r *Recording) scan(m *Moment, x *memory.Index) error {
	term.Warn(fmt.Sprintf("%s is older than the marks and failures that checkpoints have: reading all of %s", m.Text, r.name()))
	number := uint64(0)
	x.MarksFrom, x.FailuresFrom = r.begin.Number, r.begin.Number
	x.Marks = slices.DeleteFunc(x.Marks, func(m memory.Mark) bool { return m.Number > r.begin.Number })
	x.Failures = nil
	s, err := (&Recording{Path: r.Path, Name: r.Name, PIDs: r.PIDs, Whole: true}).Watch(func(e *event.Event) {
		switch {
		case e.Kind == event.Checkpoint:
			number = aggregate.NumberOf(e)
		case !e.IsImplied():
			number++
		}
		switch e.Kind {
		case event.Mark:
			x.Marks = append(x.Marks, memory.Mark{TimeNs: e.TimeNs, Name: e.Cause, Number: number})
		case event.AllocFailed:
			x.Failures = append(x.Failures, memory.FailurePoint{Point: memory.Point{Number: number, TimeNs: e.TimeNs}, PID: e.PID})
		}
	})
	if err == nil && s.Failed {
		return errors.New(strings.Join(s.Notes, "; "))
	}
	return err
}
