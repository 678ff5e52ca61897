package aggregate

import (
	"math/bits"
	"slices"
)

// maxSpans is how many spans a Timeline has at most: twice as many as a wide terminal
// has columns, also after they were joined.
const maxSpans = 1024

// A Timeline is how a number of bytes went up and down. It keeps the least and the
// most of each of up to 1024 spans of time, all as long: however many events there
// are, it takes at most 16 KiB and no peak is lost. The zero value has 0 bytes from 0 on.
type Timeline struct {
	// BeginNs is when the first span begins, CLOCK_MONOTONIC.
	BeginNs uint64
	// shift is the binary logarithm of how long a span is, in ns.
	shift int
	spans []Span
	now   uint64 // the bytes since the last change
}

// A Span is the least and the most bytes that there were in a time.
type Span struct{ Min, Max uint64 }

func (s Span) with(bytes uint64) Span { return Span{min(s.Min, bytes), max(s.Max, bytes)} }

// restart makes it a timeline that begins at a time with that many bytes.
func (t *Timeline) restart(begin, bytes uint64) {
	*t = Timeline{BeginNs: begin, spans: append(t.spans[:0], Span{bytes, bytes}), now: bytes}
}

// clone is a copy that stays as it is.
func (t *Timeline) clone() *Timeline {
	same := *t
	same.spans = slices.Clone(t.spans)
	return &same
}

// set notes that from the time on there are that many bytes.
func (t *Timeline) set(time, bytes uint64) {
	t.reach(time)
	t.now = bytes
	last := &t.spans[len(t.spans)-1]
	*last = last.with(bytes)
}

// reach makes the last span the one of the time, if that is later. What was before
// goes on until then.
func (t *Timeline) reach(time uint64) {
	passed := time - min(time, t.BeginNs)
	for passed>>t.shift >= maxSpans {
		t.join(max(1, bits.Len64(passed>>t.shift/maxSpans)))
	}
	n := int(passed>>t.shift) + 1
	if n > cap(t.spans) {
		room := make([]Span, len(t.spans), min(maxSpans, 1<<bits.Len(uint(n))))
		copy(room, t.spans)
		t.spans = room
	}
	for len(t.spans) < n {
		t.spans = append(t.spans, Span{t.now, t.now})
	}
}

// index is that of the span of a time.
func (t *Timeline) index(time uint64) int { return int((time - min(time, t.BeginNs)) >> t.shift) }

// join makes spans 2^by times as long.
func (t *Timeline) join(by int) {
	joined := t.spans[:0]
	for i, s := range t.spans {
		if at := i >> by; at < len(joined) {
			joined[at] = joined[at].with(s.Min).with(s.Max)
		} else {
			joined = append(joined, s)
		}
	}
	t.spans = joined
	t.shift += by
}

// StepNs is how long each of the Spans is.
func (t *Timeline) StepNs() uint64 { return 1 << t.shift }

// Spans are the spans until the time end, one after the other. What begins a span is
// in it too: of what was before its first change.
func (t *Timeline) Spans(end uint64) []Span {
	t.reach(end)
	return t.spans
}

// Column is in which of n columns, from the beginning to the time end, the time lies.
// A span is in one column as a whole: that of its beginning.
func (t *Timeline) Column(time, end uint64, n int) int {
	t.reach(end)
	return t.index(time) * n / max(n, len(t.spans))
}

// Columns are n columns that show the timeline from its beginning to the time end:
// fewer where it has fewer spans.
func (t *Timeline) Columns(end uint64, n int) []Span {
	spans := t.Spans(end)
	n = min(n, len(spans))
	columns := make([]Span, 0, n)
	for i, s := range spans {
		if at := i * n / len(spans); at < len(columns) {
			columns[at] = columns[at].with(s.Min).with(s.Max)
		} else {
			columns = append(columns, s)
		}
	}
	return columns
}

// With is this timeline and another one that began with it, until the time end: each
// span has the least and the most of either.
func (t *Timeline) With(other *Timeline, end uint64) *Timeline {
	spans, others := slices.Clone(t.Spans(end)), other.Spans(end)
	both := *t // whose spans are as long as the others by now, as both have come as far
	both.spans = spans
	for i, s := range others {
		both.spans[i] = both.spans[i].with(s.Min).with(s.Max)
	}
	return &both
}
