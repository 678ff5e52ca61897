package top

import "strings"

// A bar is a line that fills from both ends. Its figures are parts of whole, in any unit.
type bar struct {
	// base fills from the left, up to more if the chips differ. top fills from the right.
	base, more, top uint64
	whole           uint64
	// peak is the highest base so far, shown by a mark; 0: none.
	peak uint64
	// shared is true if base and top are of different kinds, which must be distinguishable
	// without colours too.
	shared bool
	// baseStyle and topStyle are their colours.
	baseStyle, topStyle style
}

// The kinds of cells of a bar.
const (
	cellFree = iota
	cellBase
	cellMore
	cellTop
	cellPeak
)

// eighths are the partial blocks by how many eighths they fill.
var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// draw draws the bar in so many columns. A part that is not 0 gets at least one column, and
// so does free space.
func (p painter) draw(b bar, columns int) string {
	if columns <= 0 {
		return ""
	}
	if b.whole == 0 {
		return p.paint(dim, strings.Repeat(p.pick("─", "-"), columns))
	}
	cells := make([]int, columns)
	base, part := p.fill(b.base, b.whole, columns)
	more, _ := p.fill(max(b.base, b.more), b.whole, columns)
	top, _ := p.fill(b.top, b.whole, columns)
	if b.shared && base == 0 && part > 0 {
		base = 1
	}
	if b.top > 0 { // a bar of whole columns, from the right
		top = max(1, int(float64(b.top)/float64(b.whole)*float64(columns)+0.5))
	}
	for i := range min(base, columns) {
		cells[i] = cellBase
	}
	for i := base; i < min(more, columns); i++ {
		cells[i] = cellMore
	}
	for i := max(0, columns-top); i < columns; i++ {
		cells[i] = cellTop
	}
	if more > base || b.shared || p.ascii {
		part = 0
	}
	if b.peak > max(b.base, b.more) {
		at := min(columns-1, int(float64(b.peak)/float64(b.whole)*float64(columns)))
		if cells[at] == cellFree && (part == 0 || at > base) {
			cells[at] = cellPeak
		}
	}
	var out strings.Builder
	for i := 0; i < columns; {
		j := i
		for j < columns && cells[j] == cells[i] {
			j++
		}
		n := j - i
		if part > 0 && i <= base && base < j { // the column where base ends
			if i < base {
				out.WriteString(p.cell(cells[i], b, base-i))
			}
			out.WriteString(p.paint(b.baseStyle, eighths[part]))
			n, part = j-base-1, 0
		}
		out.WriteString(p.cell(cells[i], b, n))
		i = j
	}
	return out.String()
}

// fill returns the number of full columns, and the eighths of the next.
func (p painter) fill(part, whole uint64, columns int) (full, eighth int) {
	if part == 0 {
		return 0, 0
	}
	n := int(min(1, float64(part)/float64(whole)) * float64(columns) * 8)
	if p.ascii {
		return min(columns, max(1, n/8)), 0
	}
	n = max(1, n)
	return n / 8, n % 8
}

// cell draws n columns of a kind.
func (p painter) cell(kind int, b bar, n int) string {
	unicode, ascii, st := "·", ".", dim
	switch kind {
	case cellBase:
		unicode, ascii, st = "█", "#", b.baseStyle
		if b.shared {
			unicode = "▓"
		}
	case cellMore:
		unicode, ascii, st = "▒", "+", b.baseStyle
	case cellTop:
		unicode, ascii, st = "█", "=", b.topStyle
	case cellPeak:
		unicode, ascii, st = "│", "|", noStyle
	}
	return p.paint(st, strings.Repeat(p.pick(unicode, ascii), max(0, n)))
}
