package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Recording is a source that has ended and can be shown at any of its moments.
type Recording interface {
	// Span is the first moment and the last one.
	Span() (first, last memory.Point)
	// Stops are the interesting moments, in order.
	Stops() []Stop
	// Timelines are the timelines of the whole recording.
	Timelines() []memory.RegionTimeline
	// Losses are those of the whole recording: any of its moments may lack events.
	Losses() memory.AllLosses
	// Seek makes the source show the moment after the event with the Number, which happened at
	// TimeNs or later. If the Number is 0, it is the moment after the last event up to TimeNs.
	Seek(memory.Point) error
}

// A StopKind is why a moment is interesting.
type StopKind int

const (
	StopMark StopKind = iota
	StopPeak
	StopFailure
	StopLeak
)

// A Stop is a moment with a name.
type Stop struct {
	memory.Point
	Kind StopKind
	// Name is the moment in a phrase: "peak of DRAM, chip 0".
	Name string
}

// A reel is the position of a model in a recording.
type reel struct {
	Recording
	// losses are those of the whole recording.
	losses memory.AllLosses
	// at is the moment that the user chose; it is shown once it has been read.
	at memory.Point
	// y is the line of the bar; from and columns are the part of the line with the time.
	y, from, columns int
}

func (r *reel) beginNs() uint64 { first, _ := r.Span(); return first.TimeNs }

func (r *reel) lengthNs() uint64 {
	first, last := r.Span()
	return max(1, last.TimeNs-min(last.TimeNs, first.TimeNs))
}

// column returns the column of a time, out of n.
func (r *reel) column(ns uint64, n int) int {
	return min(n-1, int(float64(ns-min(ns, r.beginNs()))/float64(r.lengthNs())*float64(n)))
}

// scrub handles a key that moves through the recording; ok is false for another key. It passes
// stops one after the other, even those at the same time.
func (m *model) scrub(key string) (ok bool) {
	r := m.reel
	if r == nil {
		return false
	}
	shown := memory.Point{Number: m.present.Number, TimeNs: m.present.StateNs}
	switch key {
	case "left", "right", "shift+left", "shift+right":
		m.seekTime(map[string]float64{"left": -0.01, "right": 0.01, "shift+left": -0.1, "shift+right": 0.1}[key])
	case ",":
		if first, _ := r.Span(); shown.Number > first.Number {
			r.at = memory.Point{Number: shown.Number - 1, TimeNs: m.present.BeforeNs}
		}
	case ".":
		if _, last := r.Span(); shown.Number < last.Number {
			r.at = memory.Point{Number: shown.Number + 1, TimeNs: shown.TimeNs}
		}
	case "n":
		stops := r.Stops()
		if i := slices.IndexFunc(stops, func(s Stop) bool { return m.compare(s.Point) > 0 }); i >= 0 {
			r.at = stops[i].Point
		} else {
			_, r.at = r.Span()
		}
	case "N":
		before := slices.DeleteFunc(slices.Clone(r.Stops()), func(s Stop) bool { return m.compare(s.Point) >= 0 })
		if len(before) > 0 {
			r.at = before[len(before)-1].Point
		} else {
			r.at, _ = r.Span()
		}
	default:
		return false
	}
	return true
}

// compare compares a moment with the chosen one, which may have no number.
func (m *model) compare(p memory.Point) int {
	if at := m.reel.at; at.Number > 0 {
		return cmp.Compare(p.Number, at.Number)
	}
	return cmp.Compare(p.TimeNs, m.reel.at.TimeNs)
}

// seekTime moves by a part of the recording.
func (m *model) seekTime(part float64) {
	m.seekTo(uint64(max(0, int64(m.reel.at.TimeNs)+int64(float64(m.reel.lengthNs())*part))))
}

func (m *model) seekTo(ns uint64) {
	first, last := m.reel.Span()
	switch {
	case ns <= first.TimeNs:
		m.reel.at = first
	case ns >= last.TimeNs:
		m.reel.at = last
	default:
		m.reel.at = memory.Point{TimeNs: ns}
	}
}

// reelLine draws the recording from its beginning to its end, with its stops and the shown
// moment. A click goes to its time. It is line y.
func (m *model) reelLine(y int) string {
	r := m.reel
	r.y = y
	at := r.at.TimeNs - min(r.at.TimeNs, r.beginNs())
	times := fmt.Sprintf(" %s of %s ", page.Moment(at), page.Moment(r.lengthNs()))
	if m.clock.Known() {
		times = " " + m.clock.UTC(r.at.TimeNs) + " UTC "
	}
	name := m.momentName()
	if name != "" {
		name = " " + m.Cut(m.clean(name), m.width*2/5)
	}
	r.from = page.Width(times)
	r.columns = max(1, m.width-r.from-page.Width(name)-1)
	for x := range r.columns {
		m.zone(y, r.from+x, r.from+x+1, func() request {
			m.seekTo(r.beginNs() + uint64(float64(r.lengthNs())*float64(x)/float64(max(1, r.columns-1))))
			return seek
		})
	}
	line := slices.Repeat([]string{m.Pick("─", "-")}, r.columns)
	for _, stop := range r.Stops() {
		sign := [...]string{StopMark: m.Pick("┼", "+"), StopPeak: m.Pick("▲", "^"), StopFailure: "!", StopLeak: "!"}[stop.Kind]
		line[r.column(stop.TimeNs, r.columns)] = sign
	}
	cursor := r.column(r.at.TimeNs, r.columns)
	return m.Paint(page.Bold, times) + m.Paint(page.Cyan, strings.Join(line[:cursor], "")) +
		m.Paint(page.Reverse, m.Pick("█", "#")) + m.Paint(page.Dim, strings.Join(line[cursor+1:], "")) + m.Paint(page.Bold, name)
}

// momentName returns the name of the chosen moment, or of its event.
func (m *model) momentName() string {
	r := m.reel
	first, last := r.Span()
	for _, stop := range r.Stops() {
		if stop.Number == r.at.Number {
			return stop.Name
		}
	}
	switch {
	case r.at.Number == 0:
		return ""
	case r.at.Number == last.Number:
		return "end"
	case r.at.Number == first.Number:
		return "beginning"
	case r.at.Number != m.present.Number || m.present.Event == nil:
		return fmt.Sprintf("event %s", page.Grouped(r.at.Number))
	}
	return describe(m.present.Event)
}

// describe returns an event in words.
func describe(e *event.Event) string {
	text := strings.ReplaceAll(e.Kind.String(), "_", " ")
	switch e.Kind {
	case event.Alloc, event.AllocFailed, event.CBAlloc:
		text += " " + page.Bytes(e.SizeBytes) + " of " + e.Region.String()
	case event.Mark, event.Lost:
		text += " " + e.Cause
	}
	if e.PID > 0 {
		text += fmt.Sprintf(", PID %d", e.PID)
	}
	return text
}
