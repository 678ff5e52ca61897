package moment

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/phases"
	"ttmem/aggregate/words"
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

// An EmptyError is the error for a span that ends before it begins.
type EmptyError struct {
	// From and To are the moments as the user wrote them.
	From, To string
}

func (e *EmptyError) Error() string { return e.To + " must be later than " + e.From }

// Empty returns the error for a span that ends before it begins.
func (s *Span) Empty() error { return &EmptyError{cmp.Or(s.From.Text, "begin"), s.To.Text} }

// A NotCalledError is the error for a span without the calls that it names.
type NotCalledError struct {
	// Call is the calls as the user named them, and Within their function.
	Call, Within string
	// Place is where they were looked for: "from warm to end in model.ttmem".
	Place string
	// Ran is how often the function ran there, and Functions are the names of all that did.
	Ran       int
	Functions []string
}

func (e *NotCalledError) Error() string {
	if e.Ran > 0 {
		return fmt.Sprintf("within %s: %s ran %s %s", e.Call, e.Within, words.Count(uint64(e.Ran), "time"), e.Place)
	}
	return fmt.Sprintf("within %s: it did not run %s", e.Call, e.Place)
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
func (l Intervals) Times() (times memory.Intervals) {
	for _, i := range l {
		times = append(times, memory.Interval{FromNs: i.from.TimeNs + 1, ToNs: i.end().TimeNs})
	}
	return times
}

// Hull returns one interval, from the first to the last.
func (l Intervals) Hull() Intervals { return Intervals{{l[0].from, l[len(l)-1].to}} }

// Intervals returns the intervals of a span.
func (r *Recording) Intervals(span Span) (Intervals, error) {
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
		return nil, r.notCalled(span, calls)
	}
	if last := &list[len(list)-1]; last.to == nil {
		last.to = end(*in.end())
	}
	return list, nil
}

// notCalled returns the error for a span without calls.
func (r *Recording) notCalled(span Span, calls *phases.Calls) error {
	whole := span
	whole.Within, whole.Nth = "", 0
	e := &NotCalledError{Call: span.Call(), Within: span.Within, Place: strings.TrimPrefix(whole.String()+" in "+r.name(), " "), Ran: calls.Began}
	for _, name := range slices.Sorted(maps.Keys(calls.Functions)) {
		e.Functions = append(e.Functions, name[strings.LastIndexByte(name, '.')+1:])
	}
	e.Functions = slices.Compact(e.Functions)
	return e
}

// Play brings a state to the intervals of a span. It calls begin with it at the beginning of each, and end at
// the end: for peaks several times, as StateAt does.
func (r *Recording) Play(span Span, list Intervals, begin func(*aggregate.State, memory.Point), end func(*State)) error {
	return r.through(span, list.stops(), func(s *State, at *stop) {
		if at.begins {
			begin(s.State, at.Point)
		} else {
			end(s.at(&span.To, at))
		}
	})
}

// Follow brings a state to the end of the file. It calls begin with it at the beginning of a span and, unless
// the span is to the end of the file, end at its end.
func (r *Recording) Follow(span Span, list Intervals, begin, end func(*aggregate.State, memory.Point)) error {
	first, last := list[0].from, *list[len(list)-1].end()
	first.begins = true
	return r.through(span, []stop{first, last, r.endStop()}, func(s *State, at *stop) {
		switch {
		case at.begins:
			begin(s.State, at.Point)
		case !at.isEnd:
			end(s.State, at.Point)
		}
	})
}

// through brings a state to the stops of a span, the second of which is the end of an interval.
func (r *Recording) through(span Span, stops []stop, reached func(*State, *stop)) error {
	n, number, empty := 0, uint64(0), false
	_, err := r.replay(stops, false, func(s *State, at *stop) {
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
