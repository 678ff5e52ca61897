// Package moment gives the states of a recording at its moments: at the peak of each region, a failed
// allocation, a mark, a time, an event, the beginning or the end, and between two of them.
package moment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/words"
	"ttmem/tracer/event"
)

// A Kind is a kind of Moment.
type Kind uint8

const (
	// Unfreed is the end, including memory that was not freed before its device was closed or its
	// process ended.
	Unfreed Kind = iota
	// End is the end, without such memory.
	End
	// Begin is the moment before the first event.
	Begin
	// Peak is the peak of each region of each chip.
	Peak
	// Failure is a failed allocation.
	Failure
	// Leak is the moment at which all of the largest leak is live.
	Leak
	// Story is a Failure, else a Leak, else Peak: see analyze.StoryOf.
	Story
	// Mark is a mark.
	Mark
	// After is a time after the first event.
	After
	// AtPoint is the moment of an event.
	AtPoint
)

// A Moment is a moment of a recording.
type Moment struct {
	Kind
	// Text is the moment as the user wrote it.
	Text string
	// Name is the name of a mark.
	Name string
	// Nth selects a mark among those with that name, or a failure; 0 selects the first or, if
	// Last is true, the last.
	Nth  int
	Last bool
	// Time is the time after the first event.
	Time time.Duration
	// Peaks selects the regions for Peak; nil: all.
	Peaks Regions
	// Point is the event of AtPoint or Leak: the one with that Number, which is not before its time. If
	// Number is 0, it is the last event up to the time.
	memory.Point
}

// Parse reads a moment: begin, end, left, peak, story, failure, a time after the first event such as 2.5s, or
// the name of a mark. failure#2 and step#2 are the second ones, and mark:NAME is a mark whose name has another
// meaning.
func Parse(text string) (Moment, error) {
	m := Moment{Text: text}
	name, marked := strings.CutPrefix(text, "mark:")
	if !marked {
		if kind, ok := named[text]; ok {
			m.Kind = kind
			return m, nil
		}
		if d, err := time.ParseDuration(text); err == nil {
			if d < 0 {
				return m, fmt.Errorf("%s: times count from the first event: give one such as 2.5s", text)
			}
			m.Kind, m.Time = After, d
			return m, nil
		}
	}
	m.Kind, m.Name = Mark, name
	if base, nth, err := CutNumber(name); err == nil {
		m.Name, m.Nth = base, nth
	} else if !marked {
		return m, err
	}
	if !marked && m.Name == "failure" {
		m.Kind, m.Name = Failure, ""
	}
	return m, nil
}

// named are moments with a name and without a number.
var named = map[string]Kind{"left": Unfreed, "end": End, "begin": Begin, "peak": Peak, "story": Story}

// CutNumber cuts the number off a name with one, such as step#2; else nth is 0.
func CutNumber(text string) (name string, nth int, err error) {
	i := strings.LastIndexByte(text, '#')
	if i <= 0 {
		return text, 0, nil
	}
	switch nth, err = strconv.Atoi(text[i+1:]); {
	case err != nil:
		return text, 0, nil
	case nth < 1:
		return text, 0, fmt.Errorf("%s: numbers begin at 1: %s#1 is the first", text, text[:i])
	}
	return text[:i], nth, nil
}

// AtEnd reports whether the moment is the end, with or without unfreed memory.
func (m *Moment) AtEnd() bool { return m.Kind == End || m.Kind == Unfreed }

// which returns the selected one of n, from 1.
func (m *Moment) which(n int) int {
	if m.Nth == 0 && m.Last {
		return max(n, 1)
	}
	return max(m.Nth, 1)
}

// MarkName returns the name of a mark as users write it.
func (m *Moment) MarkName() string { return strings.TrimPrefix(m.Text, "mark:") }

// String returns the moment for a sentence.
func (m *Moment) String() string {
	switch m.Kind {
	case Begin:
		return "at the beginning"
	case End:
		return "at the end"
	case Peak:
		return "at the peak of each region"
	case Failure:
		switch {
		case m.Nth > 0:
			return "at the " + words.Ordinal(m.Nth) + " failure"
		case m.Last:
			return "at the last failure"
		}
		return "at the first failure"
	case Leak:
		return "at the largest leak"
	case Story:
		return "at its story"
	case Mark:
		return "at the mark " + m.MarkName()
	case After:
		return fmt.Sprintf("%v after the first event", m.Time)
	}
	return "at the end: unfreed memory"
}

// Of returns the moment of a file for a sentence: "at the end of model.ttmem".
func (m *Moment) Of(name string) string {
	if m.Kind == Begin || m.Kind == End {
		return m.String() + " of " + name
	}
	return m.String() + ", of " + name
}

// find returns where a moment other than the end is: for peaks, several stops in order. A missing
// one may be in a damaged part. A Story becomes what it is.
func (r *Recording) find(m *Moment) ([]stop, error) {
	stops, err := r.lookUp(m)
	if err != nil && r.summary != nil && r.summary.Failed {
		return nil, fmt.Errorf("%w; %s", err, strings.Join(r.summary.Notes, "; "))
	}
	return stops, err
}

func (r *Recording) lookUp(m *Moment) ([]stop, error) {
	if err := ReadOnce(r.Path, r.name()); err != nil {
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
	begin := memory.Point{Number: max(r.begin.Number, x.Begin.Number), TimeNs: r.begin.TimeNs}
	if m.Kind == Story {
		switch story := analyze.StoryOf(end, begin); story.Kind {
		case analyze.StoryFailure:
			m.Kind, m.Last = Failure, true
		case analyze.StoryLeak:
			m.Kind, m.Point = Leak, story.Point
		default:
			m.Kind = Peak
		}
	}
	switch m.Kind {
	case End, Unfreed:
		return []stop{r.endStop()}, nil
	case Peak:
		return r.findPeaks(m, x.Peaks)
	case Failure, Mark:
		at, err := r.findPoint(m, &x)
		return []stop{{Point: at, of: EveryRegion}}, err
	case AtPoint, Leak:
		return []stop{{Point: m.Point, timed: m.Number == 0, of: EveryRegion}}, nil
	case After:
		if length := end.Now() - r.begin.TimeNs; uint64(m.Time) > length {
			return nil, fmt.Errorf("%s ends before %v: its last event is at %s", r.name(), m.Time, time.Duration(length).Round(time.Microsecond))
		}
		return []stop{{Point: memory.Point{TimeNs: r.begin.TimeNs + uint64(m.Time)}, timed: true, of: EveryRegion}}, nil
	}
	return []stop{{Point: memory.Point{Number: begin.Number}, of: EveryRegion}}, nil
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
			r.summary.Notes = slices.Clip(append(r.summary.Notes, fmt.Sprintf("the peak of %s of chip %d lies before %s begins and is not shown",
				one.Region, one.Device, r.name()))) // callers append to it
			r.summary.EarlierPeaks = true
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
		return nil, &EarlierPeaksError{r.name()}
	}
	slices.SortFunc(stops, func(a, b stop) int { return cmp.Compare(a.Number, b.Number) })
	return stops, nil
}

// An EarlierPeaksError is the error for the peaks of a file that lie before it begins. Its state has their call sites.
type EarlierPeaksError struct{ Name string }

func (e *EarlierPeaksError) Error() string {
	return fmt.Sprintf("the peak of each region lies before %s begins", e.Name)
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
		return fmt.Errorf("no %s in %s: %s failed", m.Text, r.name(), words.Count(uint64(found), "allocation"))
	}
	if _, err := time.ParseDuration(m.Name + "s"); err == nil {
		return fmt.Errorf("no mark %[1]s in %[2]s: a time has a unit: write %[1]ss for seconds, or %[1]sms", m.Name, r.name())
	}
	earlier := func(one memory.Mark) bool { return one.Number < r.begin.Number }
	if found == 0 && len(m.points(x)) > 0 {
		return fmt.Errorf("no mark %s in %s: the mark %s lies before %s begins", m.Text, r.name(), words.Clean(m.Name), r.name())
	}
	return m.Missing(&memory.Index{Marks: slices.DeleteFunc(slices.Clone(x.Marks), earlier)}, "in "+r.name())
}

// A NoMarkError is the error for a mark that is not there.
type NoMarkError struct {
	// Mark is the mark as the user wrote it, and Place where it was looked for: "in model.ttmem".
	Mark, Place string
	// Others says which marks are there, and None is true if there are none.
	Others string
	None   bool
}

func (e *NoMarkError) Error() string {
	return fmt.Sprintf("no mark %s %s: %s", e.Mark, e.Place, e.Others)
}

// Missing returns an error for a mark that is not among those of a place, such as "in model.ttmem".
func (m *Moment) Missing(x *memory.Index, place string) error {
	return &NoMarkError{m.MarkName(), place, m.OtherMarks(x), len(x.Marks) == 0}
}

// OtherMarks says which marks there are, if the one of the moment is not among them.
func (m *Moment) OtherMarks(x *memory.Index) string {
	found, names := len(m.points(x)), []string(nil)
	for _, mark := range x.Marks {
		if name := words.Clean(mark.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case found == 1:
		return "there is 1 of that name"
	case found > 0:
		return fmt.Sprintf("there are %d of that name", found)
	case names == nil:
		return "there are no marks"
	}
	return "there are " + words.Some(names, "mark")
}

// scan reads all marks and failures of the file: the state at the end has only the newest.
func (r *Recording) scan(m *Moment, x *memory.Index) error {
	if r.Warn != nil {
		r.Warn(fmt.Sprintf("%s is older than the marks and failures that checkpoints have: reading all of %s", m.Text, r.name()))
	}
	x.MarksFrom, x.FailuresFrom = r.begin.Number, r.begin.Number
	x.Marks = slices.DeleteFunc(x.Marks, func(m memory.Mark) bool { return m.Number > r.begin.Number })
	x.Failures = nil
	return r.each(func(e *event.Event, number uint64) {
		switch e.Kind {
		case event.Mark:
			x.Marks = append(x.Marks, memory.Mark{TimeNs: e.TimeNs, Name: e.Cause, Number: number})
		case event.AllocFailed:
			x.Failures = append(x.Failures, memory.FailurePoint{Point: memory.Point{Number: number, TimeNs: e.TimeNs}, PID: e.PID})
		}
	})
}

// each calls handle with all events of the file, and their numbers as memory.Point counts them.
func (r *Recording) each(handle func(e *event.Event, number uint64)) error {
	number := uint64(0)
	s, err := (&Recording{Path: r.Path, Name: r.Name, PIDs: r.PIDs, Whole: true, Ctx: r.Ctx, Open: r.Open}).Watch(func(e *event.Event) {
		switch {
		case e.Kind == event.Checkpoint:
			number = aggregate.NumberOf(e)
		case !e.IsImplied():
			number++
		}
		handle(e, number)
	})
	if err == nil && s.Failed {
		return errors.New(strings.Join(s.Notes, "; "))
	}
	return err
}
