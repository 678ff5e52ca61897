package memory

import (
	"math/bits"
	"slices"

	"ttmem/tracer/codec"
)

// maxSpans is how many spans a Timeline has at most: twice as many as a wide terminal
// has columns, also after they were joined.
const maxSpans = 1024

// A Timeline is how a number of bytes went up and down. It keeps the minimum and the maximum
// of each of up to 1024 spans of time of equal length: however many events there are, it
// takes at most 16 KiB, and no peak is lost. The zero value has 0 bytes from time 0 on.
type Timeline struct {
	// BeginNs is when the first span begins, CLOCK_MONOTONIC.
	BeginNs uint64
	// shift is the binary logarithm of how long a span is, in ns.
	shift int
	spans []Span
	now   uint64 // the bytes since the last change
}

// A Span is the minimum and the maximum of the bytes in a span of time.
type Span struct{ Min, Max uint64 }

func (s Span) with(bytes uint64) Span { return Span{min(s.Min, bytes), max(s.Max, bytes)} }

// Restart makes it a timeline that begins at a time with that many bytes.
func (t *Timeline) Restart(begin, bytes uint64) {
	*t = Timeline{BeginNs: begin, spans: append(t.spans[:0], Span{bytes, bytes}), now: bytes}
}

// Clone returns a copy that does not change.
func (t *Timeline) Clone() *Timeline {
	same := *t
	same.spans = slices.Clone(t.spans)
	return &same
}

// Set sets the number of bytes from a time on.
func (t *Timeline) Set(time, bytes uint64) {
	t.reach(time)
	t.now = bytes
	last := &t.spans[len(t.spans)-1]
	*last = last.with(bytes)
}

// Raise adds a number of bytes at all times, up to a total.
func (t *Timeline) Raise(bytes, most uint64) {
	for i, s := range t.spans {
		t.spans[i] = Span{max(s.Min, min(s.Min+bytes, most)), max(s.Max, min(s.Max+bytes, most))}
	}
	t.now += bytes
}

// Now returns the bytes since the last change.
func (t *Timeline) Now() uint64 { return t.now }

// reach adds spans up to the one of the time, with the bytes of the last change.
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

// index returns the index of the span that a time is in.
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

// StepNs returns the length of each of the Spans.
func (t *Timeline) StepNs() uint64 { return 1 << t.shift }

// Spans returns the spans until the time end, one after the other. Each has the bytes with
// which it begins as well.
func (t *Timeline) Spans(end uint64) []Span {
	t.reach(end)
	return t.spans
}

// Column returns in which of n columns, from the beginning to the time end, the time is. All of a
// span is in the column of its beginning.
func (t *Timeline) Column(time, end uint64, n int) int {
	t.reach(end)
	return t.index(time) * n / max(n, len(t.spans))
}

// Columns returns n columns from the beginning to the time end; fewer if there are fewer
// spans.
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

// With returns a timeline of this one and another one that began at the same time, until the
// time end: each span has the minimum and the maximum of both.
func (t *Timeline) With(other *Timeline, end uint64) *Timeline {
	spans, others := slices.Clone(t.Spans(end)), other.Spans(end)
	both := *t // both reach the same time, so their spans are of the same length
	both.spans = spans
	for i := range min(len(spans), len(others)) { // in a damaged recording they may differ
		both.spans[i] = spans[i].with(others[i].Min).with(others[i].Max)
	}
	return &both
}

// Code writes or reads the timeline.
func (t *Timeline) Code(c *codec.Codec) {
	c.Uints(&t.BeginNs, &t.now)
	c.Below(&t.shift, 64)
	var before Span
	codec.ListUpTo(c, &t.spans, maxSpans, func(s *Span) {
		c.Delta(&s.Min, before.Min)
		c.Delta(&s.Max, before.Max)
		before = *s
	})
}
