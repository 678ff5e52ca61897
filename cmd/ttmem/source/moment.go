package source

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
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
	// Point is the event of AtPoint: the one with that Number, which is not before its time. If
	// Number is 0, it is the last event up to the time.
	memory.Point
}

// ParseMoment reads a moment. mark:NAME is a mark whose name has another meaning.
func ParseMoment(flag, text string) (Moment, error) {
	m := Moment{Text: text}
	name, marked := strings.CutPrefix(text, "mark:")
	if !marked {
		switch text {
		case "left":
			return m, nil
		case "end":
			m.Kind = End
			return m, nil
		case "begin":
			m.Kind = Begin
			return m, nil
		case "peak":
			m.Kind = Peak
			return m, nil
		}
		if d, err := time.ParseDuration(text); err == nil {
			if d < 0 {
				return m, fmt.Errorf("--%s %s: times count from the first event: give one such as 2.5s", flag, text)
			}
			m.Kind, m.Time = After, d
			return m, nil
		}
	}
	m.Kind, m.Name = Mark, name
	if i := strings.LastIndexByte(name, '#'); i > 0 {
		n, err := strconv.Atoi(name[i+1:])
		switch {
		case err == nil && n > 0:
			m.Name, m.Nth = name[:i], n
		case err == nil && !marked:
			return m, fmt.Errorf("--%s %s: numbers begin at 1: %s#1 is the first", flag, text, name[:i])
		}
	}
	if !marked && m.Name == "failure" {
		m.Kind, m.Name = Failure, ""
	}
	return m, nil
}

// A Span is the time between two moments.
type Span struct{ From, To Moment }

// Whole is the span from the beginning to the end.
var Whole = Span{From: Moment{Kind: Begin}, To: Moment{Kind: End, Last: true}}

// ParseSpan reads the values of --from and --to; "" is the beginning or the end. Without a file, live is
// a kind of moment that running processes have, besides the beginning and the end.
func ParseSpan(file, from, to string, live Kind) (s Span, err error) {
	s = Whole
	if from != "" {
		s.From, err = momentOf(file, "from", from, live)
	}
	if to != "" && err == nil {
		s.To, err = momentOf(file, "to", to, live)
	}
	s.To.Last = true
	return s, err
}

// momentOf reads a moment of a file or, without one, of running processes.
func momentOf(file, flag, text string, live Kind) (Moment, error) {
	m, err := ParseMoment(flag, text)
	if normally := m.AtEnd() && flag != "from" || m.Kind == Begin && flag == "from"; err == nil && file == "" && !normally && m.Kind != live {
		return m, fmt.Errorf("--%s is a moment of a recording: leave it out for running processes", flag)
	}
	return m, err
}

// ParseAt reads the value of --at.
func ParseAt(file, text string) (Moment, error) {
	at, err := momentOf(file, "at", text, End)
	at.Last = true
	if err == nil && at.Kind == Unfreed {
		return at, fmt.Errorf("--at left: only diff takes left, what was never freed at the end; a mark of this name is mark:left")
	}
	return at, err
}

// IsWhole reports whether a span is from the beginning to the end.
func (s *Span) IsWhole() bool { return s.From.Kind == Begin && s.To.AtEnd() }

// Empty returns the error for a span that ends before it begins.
func (s *Span) Empty() error {
	return fmt.Errorf("--to %s has to be later than --from %s", s.To.Text, cmp.Or(s.From.Text, "begin"))
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
			return "at the " + page.Ordinal(m.Nth) + " failure"
		case m.Last:
			return "at the last failure"
		}
		return "at the first failure"
	case Mark:
		return "at the mark " + m.MarkName()
	case After:
		return fmt.Sprintf("%v after the first event", m.Time)
	}
	return "at the end: what was never freed"
}

// Of returns the moment of a file for a sentence: "at the end of model.ttmem".
func (m *Moment) Of(path string) string {
	if m.Kind == Begin || m.Kind == End {
		return m.String() + " of " + shownName(path)
	}
	return m.String() + ", of " + shownName(path)
}
