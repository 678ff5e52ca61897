// Package chart draws the use of memory over time with characters.
package chart

import (
	"fmt"
	"math"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

// A Chart is a timeline as an area of characters.
type Chart struct {
	page.Painter
	Columns []memory.Span
	// Base is the part of each column that is drawn differently, from the bottom: the circular
	// buffers of L1. Nil if there is none.
	Base []memory.Span
	// Top is the bytes of the whole height.
	Top uint64
	// Bottom is the bytes at the bottom of One.
	Bottom uint64
	// Style is that of the area.
	Style page.Style
}

// Gutter is the columns before a chart of Lines.
const Gutter = 13

// Lines returns the chart with this many rows, and its axes. top is the label of the first row,
// spanNs the time from the first column to the last, and mark a column to mark on the axis.
func (t *Chart) Lines(height int, top string, spanNs uint64, mark int) (lines []string) {
	for i, row := range t.Rows(height) {
		label, edge := "", t.Pick("│", "|")
		if i == 0 {
			label, edge = top, t.Pick("┤", "+")
		}
		lines = append(lines, page.Right(label, Gutter-2)+" "+t.Paint(page.Dim, edge)+row)
	}
	line, labels := t.axisLines(spanNs, mark)
	return append(lines, page.Right("0 B", Gutter-2)+" "+t.Paint(page.Dim, t.Pick("┼", "+")+line),
		page.Blank(Gutter)+t.Paint(page.Dim, labels))
}

// One is the chart in one row, of the highest of each column, from Bottom to Top. Above 0 something is drawn.
func (t *Chart) One() string {
	levels := []rune(t.Pick(" ▁▂▃▄▅▆▇█", " _.-~=+*#"))
	var b strings.Builder
	for _, c := range t.Columns {
		level := 0
		if c.Max > 0 {
			level = 1 + int(7*float64(c.Max-min(c.Max, t.Bottom))/float64(max(1, t.Top-t.Bottom))+0.5)
		}
		b.WriteRune(levels[min(level, 8)])
	}
	return b.String()
}

// Fit makes the lowest and the highest column, of those above 0, the bottom and the top.
func (t *Chart) Fit() {
	t.Bottom, t.Top = math.MaxUint64, 0
	for _, c := range t.Columns {
		if c.Max > 0 {
			t.Bottom, t.Top = min(t.Bottom, c.Max), max(t.Top, c.Max)
		}
	}
	t.Bottom = min(t.Bottom, t.Top)
}

// eighthsUp are the partial blocks from below, by the number of filled eighths.
var eighthsUp = [...]string{"", "▁", "▂", "▃", "▄", "▅", "▆", "▇"}

// Rows are the lines from the top. Above 0 something is drawn.
func (t *Chart) Rows(height int) []string {
	rows := make([]string, height)
	for r := range rows {
		var b strings.Builder
		for i := range t.Columns {
			b.WriteString(t.cell(i, uint64(height-1-r), uint64(height)))
		}
		rows[r] = t.Paint(t.Style, strings.TrimRight(b.String(), " "))
	}
	return rows
}

// cell is one character: of a column, in a row counted from the bottom.
func (t *Chart) cell(column int, row, height uint64) string {
	least, most := t.level(t.Columns[column].Min, height), t.level(t.Columns[column].Max, height)
	bottom := row * 8
	if t.Base != nil {
		// to half a row
		if base := t.level(t.Base[column].Min, height); base > 0 && (base >= bottom+4 || row == 0) {
			return t.Pick("▓", "=")
		}
	}
	switch {
	case least >= bottom+8:
		return t.Pick("█", "#")
	case least > bottom && t.ASCII:
		return "#"
	case least > bottom:
		return eighthsUp[least-bottom]
	case most >= bottom+8 || most > bottom && t.ASCII:
		return t.Pick("│", "|")
	case most > bottom+4:
		return "│"
	case most > bottom:
		return "╷"
	}
	return " "
}

// level returns the height of a number of bytes, in eighths of a row.
func (t *Chart) level(bytes, height uint64) uint64 {
	if bytes == 0 || t.Top == 0 {
		return 0
	}
	return max(1, uint64(float64(bytes)/float64(t.Top)*float64(height*8)+0.5))
}

// A timeAxis is the ticks of a time, each step ns after the one before.
type timeAxis struct {
	stepNs uint64
	unit   timeUnit
}

type timeUnit struct {
	name string
	ns   uint64
}

// timeUnits are in order, the largest first.
var timeUnits = []timeUnit{{"h", 3600e9}, {"min", 60e9}, {"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}}

// tickSteps are the distances that ticks may have, in ns: 1, 2 and 5 times a power of
// ten until half a minute, and then parts and multiples of an hour.
var tickSteps = func() (steps []uint64) {
	for power := uint64(1e3); power <= 1e9; power *= 10 {
		steps = append(steps, power, 2*power, 5*power)
	}
	for _, seconds := range []uint64{10, 20, 30, 60, 120, 300, 600, 1200, 1800} {
		steps = append(steps, seconds*1e9)
	}
	for hours := uint64(1); hours < 1e5; hours *= 2 {
		steps = append(steps, hours*3600e9)
	}
	return steps
}()

// newTimeAxis has at most n ticks after the first.
func newTimeAxis(spanNs uint64, n int) timeAxis {
	a := timeAxis{stepNs: tickSteps[len(tickSteps)-1]}
	for _, step := range tickSteps {
		if spanNs/step <= uint64(max(1, n)) {
			a.stepNs = step
			break
		}
	}
	// the largest unit up to the time in which steps are whole tenths
	for _, a.unit = range timeUnits {
		if a.unit.ns <= spanNs && a.stepNs%(a.unit.ns/10) == 0 {
			break
		}
	}
	return a
}

// label returns the label of the tick at a time. All labels have the same unit.
func (a timeAxis) label(ns uint64) string {
	tenths := ns / (a.unit.ns / 10)
	if a.stepNs%a.unit.ns == 0 {
		return fmt.Sprintf("%d %s", tenths/10, a.unit.name)
	}
	return fmt.Sprintf("%d.%d %s", tenths/10, tenths%10, a.unit.name)
}

// axisLines returns the axis below a chart, with a mark at a column, and its labels. A label
// begins at its tick, or ends with the chart.
func (t *Chart) axisLines(spanNs uint64, mark int) (line, labels string) {
	n := len(t.Columns)
	axis := newTimeAxis(spanNs, n/10)
	marks := []rune(strings.Repeat(t.Pick("─", "-"), n))
	text := []rune(strings.Repeat(" ", n))
	free := 0 // where the next label may begin
	for ns := uint64(0); ns <= spanNs; ns += axis.stepNs {
		at := int(float64(ns) / float64(max(1, spanNs)) * float64(n))
		if at >= n {
			break
		}
		marks[at] = []rune(t.Pick("┬", "+"))[0]
		label := []rune(axis.label(ns))
		if t.ASCII {
			label = []rune(strings.Replace(string(label), "µ", "u", 1))
		}
		if begin := min(at, n-len(label)); begin >= free {
			copy(text[begin:], label)
			free = begin + len(label) + 1
		}
	}
	if mark < n {
		marks[mark] = []rune(t.Pick("▲", "^"))[0]
	}
	return string(marks), strings.TrimRight(string(text), " ")
}
