package source

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/phases"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A Span is a part of a recording: the time between two moments and, of that, only the calls of a function.
type Span struct {
	From, To Moment
	// Within is the function, or a line that calls one, such as model.py:31; "" if all the time counts.
	Within string
	// Nth is the only call that counts, from 1; 0: all calls.
	Nth int
}

// Whole is the span from the beginning to the end.
var Whole = Span{From: Moment{Kind: Begin}, To: Moment{Kind: End, Last: true}}

// ParseSpan reads the values of --from, --to and --within; "" is the beginning or the end. Without a file,
// live is a kind of moment that running processes have, besides the beginning and the end.
func ParseSpan(file string, text flags.Span, live Kind) (s Span, err error) {
	s = Whole
	if text.From != "" {
		s.From, err = momentOf(file, "from", text.From, live)
	}
	if text.To != "" && err == nil {
		s.To, err = momentOf(file, "to", text.To, live)
	}
	s.To.Last = true
	for flag, of := range map[string]Moment{"from": s.From, "to": s.To} {
		if err == nil && of.Kind == Story {
			err = fmt.Errorf("--%s story: only --at takes story; a mark of this name is mark:story", flag)
		}
	}
	if err != nil || text.Within == "" {
		return s, err
	}
	if file == "" {
		return s, errors.New("--within needs a recording: `ttmem run -o FILE -- COMMAND` makes one")
	}
	s.Within, s.Nth, err = nthOf(text.Within)
	if err != nil {
		return s, fmt.Errorf("--within %w", err)
	}
	return s, nil
}

// IsWhole reports whether a span is from the beginning to the end.
func (s *Span) IsWhole() bool { return s.From.Kind == Begin && s.To.AtEnd() && s.Within == "" }

// String is the span in a sentence: "within forward, from warm to trained"; "" without flags.
func (s *Span) String() string {
	text := s.Call()
	if text != "" {
		text = "within " + text
	}
	if s.From.Text == "" && s.To.AtEnd() {
		return text
	}
	if text != "" {
		text += ", "
	}
	return text + "from " + cmp.Or(s.From.Text, "begin") + " to " + cmp.Or(s.To.Text, "end")
}

// Call is the calls as the user named them: "forward", "forward#3".
func (s *Span) Call() string {
	if s.Nth > 0 {
		return fmt.Sprintf("%s#%d", s.Within, s.Nth)
	}
	return s.Within
}

// Empty returns the error for a span that ends before it begins.
func (s *Span) Empty() error {
	return fmt.Errorf("--to %s must be later than --from %s", s.To.Text, cmp.Or(s.From.Text, "begin"))
}

// An Interval is a part of a span without a gap: what comes after from, up to to.
type Interval struct {
	from stop
	// to are several stops in order for peaks, each with the regions that have theirs there.
	to []stop
}

// Intervals are those of a span, in order: a call each, or one from moment to moment.
type Intervals []Interval

// Begin is the point before the first event.
func (l Intervals) Begin() memory.Point { return l[0].from.Point }

// End is the point of the last event.
func (l Intervals) End() memory.Point { return l[len(l)-1].end().Point }

func (i *Interval) end() *stop { return &i.to[len(i.to)-1] }

// Times returns when the events of each happened.
func (l Intervals) Times() memory.Intervals {
	return page.Each(l, func(i Interval) memory.Interval {
		return memory.Interval{FromNs: i.from.TimeNs + 1, ToNs: i.end().TimeNs}
	})
}

// Hull returns one interval, from the first to the last.
func (l Intervals) Hull() Intervals { return Intervals{{l[0].from, l[len(l)-1].to}} }

// Span returns the time of a span for a document.
func (l Intervals) Span(s *Span) page.Span {
	return page.Span{FromNs: l.Times()[0].FromNs, ToNs: l.End().TimeNs, Within: s.Call()}
}

// Intervals returns the intervals of a span.
func (r *Recording) Intervals(span Span) (Intervals, error) {
	list, err := r.intervals(span)
	if err != nil {
		return nil, r.absent(err)
	}
	return list, nil
}

func (r *Recording) intervals(span Span) (Intervals, error) {
	from, err := r.find(&span.From)
	if err != nil {
		return nil, err
	}
	to, err := r.find(&span.To)
	if err != nil {
		return nil, err
	}
	if len(from) == 0 || len(to) == 0 {
		return nil, fmt.Errorf("nothing was allocated in %s: give another moment than peak", r.name())
	}
	whole := Interval{from[0], to}
	if whole.from.TimeNs == 0 { // the beginning
		whole.from.TimeNs = r.begin.TimeNs - min(1, r.begin.TimeNs)
	}
	if span.From.Kind != Begin && !span.To.AtEnd() {
		whole.to = slices.DeleteFunc(to, func(s stop) bool { return !whole.from.isBefore(&s) })
	}
	if len(whole.to) == 0 {
		return nil, span.Empty()
	}
	if span.Within == "" {
		return Intervals{whole}, nil
	}
	return r.calls(span, whole)
}

// calls returns the calls of the span's function in an interval.
func (r *Recording) calls(span Span, in Interval) (list Intervals, err error) {
	calls, open, over := phases.NewCalls(span.Within), 0, false
	// closed is when a device was closed after the last allocation and run: there a call without a later
	// event ends, as all its memory does.
	var closed *stop
	end := func(at stop) []stop {
		if closed != nil {
			at = *closed
		}
		return []stop{at}
	}
	counts := func(nth int) bool { return nth > 0 && (span.Nth == 0 || nth == span.Nth) }
	err = r.each(func(e *event.Event, number uint64) {
		at, before := stop{Point: memory.Point{Number: number, TimeNs: e.TimeNs}}, stop{of: EveryRegion}
		if over || e.Kind == event.Checkpoint || !in.from.isBefore(&at) {
			return
		}
		if !e.IsImplied() { // which has a number
			number--
		}
		before.Point = memory.Point{Number: number, TimeNs: e.TimeNs - 1}
		begun, ended := 0, 0
		if over = in.end().isBefore(&at); !over {
			begun, ended = calls.Event(e)
		}
		if counts(ended) {
			open--
		}
		if last := len(list) - 1; last >= 0 && list[last].to == nil && (open == 0 || over) {
			list[last].to = end(before)
		}
		switch {
		case begun > 0, e.Kind == event.Alloc, e.Kind == event.ProgramRun, e.Kind == event.TraceReplay:
			closed = nil
		case e.Kind == event.DeviceClose && closed == nil:
			closed = &before
		}
		if counts(begun) {
			if open++; open == 1 { // else a call of another process goes on
				list = append(list, Interval{from: before})
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case list == nil:
		return nil, r.neverRan(span, calls)
	}
	if last := &list[len(list)-1]; last.to == nil {
		last.to = end(*in.end())
	}
	return list, nil
}

// neverRan returns the error for a span without calls.
func (r *Recording) neverRan(span Span, calls *phases.Calls) error {
	whole := span
	whole.Within, whole.Nth = "", 0
	place := strings.TrimPrefix(whole.String()+" in "+r.name(), " ")
	var names []string
	for _, name := range slices.Sorted(maps.Keys(calls.Functions)) {
		names = append(names, name[strings.LastIndexByte(name, '.')+1:])
	}
	switch like := flags.Similar(span.Within, slices.Compact(names)); {
	case calls.Began > 0:
		return fmt.Errorf("--within %s: %s ran %s %s", span.Call(), span.Within, page.Count(uint64(calls.Began), "time"), place)
	case len(like) > 0:
		return fmt.Errorf("--within %s: it did not run %s: did you mean %s?", span.Within, place, strings.Join(like, " or "))
	}
	return fmt.Errorf("--within %s: it did not run %s; `ttmem phases %s` lists functions that did", span.Within, place, r.name())
}

// Play brings a state to the intervals of a span. It calls begin with it at the beginning of each, and end at
// the end: for peaks several times, as a Source does. It returns the state at the end of the file.
func (r *Recording) Play(span Span, list Intervals, begin func(*aggregate.State, memory.Point), end func(*State, Regions)) (*State, error) {
	ended := r.at(span.To, end)
	err := r.through(span, list.stops(), func(s *aggregate.State, at *stop) {
		if at.begins {
			begin(s, at.Point)
		} else {
			ended(s, at)
		}
	})
	return r.ended(span.To, err)
}

// A spanEnd is a Source that has the state at the end of a span.
type spanEnd struct {
	r    *Recording
	span Span
	last Intervals
}

// EndOf returns the state at the end of a span as a Source.
func (r *Recording) EndOf(span Span, list Intervals) Source {
	return &spanEnd{r, span, list[len(list)-1:]}
}

// StateAt has one moment, as running processes have.
func (e *spanEnd) StateAt(_ Moment, reached func(s *State, of Regions)) (*State, error) {
	return e.r.Play(e.span, e.last, func(*aggregate.State, memory.Point) {}, reached)
}

// Follow brings a state to the end of the file. It calls begin with it at the beginning of a span and, unless
// the span is to the end of the file, end at its end.
func (r *Recording) Follow(span Span, list Intervals, begin, end func(*aggregate.State, memory.Point)) error {
	first, last := list[0].from, *list[len(list)-1].end()
	first.begins = true
	return r.through(span, []stop{first, last, r.endStop()}, func(s *aggregate.State, at *stop) {
		switch {
		case at.begins:
			begin(s, at.Point)
		case !at.isEnd:
			end(s, at.Point)
		}
	})
}

// through brings a state to the stops of a span, the second of which is the end of an interval.
func (r *Recording) through(span Span, stops []stop, reached func(*aggregate.State, *stop)) error {
	n, number, empty := 0, uint64(0), false
	_, err := r.replay(stops, false, func(s *aggregate.State, at *stop) {
		if n++; n == 2 {
			empty = s.Number() == number
		}
		number = s.Number()
		reached(s, at)
	})
	if err == nil && empty && span.From.Kind != Begin { // a mark may come before all else
		return fmt.Errorf("nothing happened %s in %s: give other moments", span.String(), r.name())
	}
	return err
}

// stops returns the beginnings and the ends.
func (l Intervals) stops() (list []stop) {
	for _, one := range l {
		one.from.begins = true
		list = append(append(list, one.from), one.to...)
	}
	return list
}

// Times returns the intervals of a span in ns after the first event, for views that need no state. Such
// views show the event of a moment, too.
func (r *Recording) Times(span Span) (times memory.Intervals, err error) {
	list, err := r.Intervals(span)
	for i := range list {
		one := memory.Interval{FromNs: list[i].from.TimeNs - min(list[i].from.TimeNs, r.begin.TimeNs), ToNs: math.MaxUint64}
		if to := list[i].end(); !to.isEnd {
			one.ToNs = to.TimeNs - min(to.TimeNs, r.begin.TimeNs)
		}
		times = append(times, one)
	}
	return times, err
}
