package main

import (
	"fmt"
	"strings"

	"ttmem/aggregate"
)

// A textChart is a timeline as an area of characters.
type textChart struct {
	painter
	columns []aggregate.Span
	// base are the part of each column that is drawn from the bottom in another way:
	// the circular buffers of L1. Nil: there is none.
	base []aggregate.Span
	// top is the bytes of the whole height.
	top uint64
	// style is that of the area.
	style style
}

// eighthsUp are the partial blocks by how many eighths they fill, from below.
var eighthsUp = [...]string{"", "▁", "▂", "▃", "▄", "▅", "▆", "▇"}

// rows are the lines from the top. What is there at all is seen.
func (t *textChart) rows(height int) []string {
	rows := make([]string, height)
	for r := range rows {
		var b strings.Builder
		for i := range t.columns {
			b.WriteString(t.cell(i, uint64(height-1-r), uint64(height)))
		}
		rows[r] = t.paint(t.style, strings.TrimRight(b.String(), " "))
	}
	return rows
}

// cell is one character: of a column, in a row counted from the bottom.
func (t *textChart) cell(column int, row, height uint64) string {
	least, most := t.level(t.columns[column].Min, height), t.level(t.columns[column].Max, height)
	bottom := row * 8
	if t.base != nil {
		// to half a row
		if base := t.level(t.base[column].Min, height); base > 0 && (base >= bottom+4 || row == 0) {
			return t.pick("▓", "=")
		}
	}
	switch {
	case least >= bottom+8:
		return t.pick("█", "#")
	case least > bottom && t.ascii:
		return "#"
	case least > bottom:
		return eighthsUp[least-bottom]
	case most >= bottom+8 || most > bottom && t.ascii:
		return t.pick("│", "|")
	case most > bottom+4:
		return "│"
	case most > bottom:
		return "╷"
	}
	return " "
}

// level is how high that is, in eighths of a row.
func (t *textChart) level(bytes, height uint64) uint64 {
	if bytes == 0 || t.top == 0 {
		return 0
	}
	return max(1, uint64(float64(bytes)/float64(t.top)*float64(height*8)+0.5))
}

// A timeAxis is the ticks of a time.
type timeAxis struct {
	spanNs, stepNs uint64
	unit           timeUnit
}

type timeUnit struct {
	name string
	ns   uint64
	// steps are the distances that ticks may have, in ns.
	steps []uint64
}

// timeUnits are in order, the largest first.
var timeUnits = []timeUnit{
	{"h", 3600e9, []uint64{3600e9, 2 * 3600e9, 6 * 3600e9, 12 * 3600e9, 24 * 3600e9, 48 * 3600e9, 168 * 3600e9}},
	{"min", 60e9, []uint64{60e9, 120e9, 300e9, 600e9, 1200e9, 1800e9}},
	{"s", 1e9, []uint64{1e9, 2e9, 5e9, 10e9, 20e9, 30e9}},
	{"ms", 1e6, []uint64{1e6, 2e6, 5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6}},
	{"µs", 1e3, []uint64{1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 200e3, 500e3}},
}

// newTimeAxis has at most n ticks after the first, if the time is not longer than
// years.
func newTimeAxis(spanNs uint64, n int) timeAxis {
	for i := len(timeUnits) - 1; i >= 0; i-- {
		for _, step := range timeUnits[i].steps {
			if spanNs/step <= uint64(max(1, n)) {
				return timeAxis{spanNs, step, timeUnits[i]}
			}
		}
	}
	return timeAxis{spanNs, max(1, spanNs/uint64(max(1, n))), timeUnits[0]}
}

// label is that of the tick at a time. An axis of seconds begins at 0 s.
func (a timeAxis) label(ns uint64) string {
	return fmt.Sprintf("%d %s", ns/a.unit.ns, a.unit.name)
}

// axisLines are the axis below a chart, with a mark at a column, and its labels.
func (t *textChart) axisLines(spanNs uint64, mark int) (line, labels string) {
	n := len(t.columns)
	axis := newTimeAxis(spanNs, n/10)
	marks := []rune(strings.Repeat(t.pick("─", "-"), n))
	text := []rune(strings.Repeat(" ", n+12))
	free := 0 // where the next label may begin
	for ns := uint64(0); ns <= spanNs; ns += axis.stepNs {
		at := int(float64(ns) / float64(max(1, spanNs)) * float64(n))
		if at >= n {
			break
		}
		marks[at] = []rune(t.pick("┬", "+"))[0]
		if label := []rune(axis.label(ns)); at >= free {
			if t.ascii {
				label = []rune(strings.Replace(string(label), "µ", "u", 1))
			}
			copy(text[at:], label)
			free = at + len(label) + 1
		}
	}
	if mark < n {
		marks[mark] = []rune(t.pick("▲", "^"))[0]
	}
	return string(marks), strings.TrimRight(string(text), " ")
}
