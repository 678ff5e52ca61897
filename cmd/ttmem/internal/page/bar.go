package page

import "strings"

// A Bar fills from the left. Its figures are parts of Whole, in any unit.
type Bar struct {
	Part, Whole uint64
	// More is the largest part of several, if Part is the smallest.
	More uint64
	// Peak is the highest part so far, shown by a mark; 0: none.
	Peak  uint64
	Style Style
}

// eighths are the partial blocks, by the number of filled eighths.
var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// DrawBar draws a bar. A part that is not 0 is visible.
func (p Painter) DrawBar(b Bar, columns int) string {
	if b.Whole == 0 {
		return p.Paint(Dim, strings.Repeat(p.Pick("─", "-"), max(0, columns)))
	}
	full, eighth := p.fill(b.Part, b.Whole, columns)
	end, _ := p.fill(max(b.Part, b.More), b.Whole, columns)
	if end > full {
		eighth = 0
	}
	bar := p.Paint(b.Style, strings.Repeat(p.Pick("█", "#"), full)+eighths[eighth]+strings.Repeat(p.Pick("▒", "+"), end-full))
	used := Width(bar)
	at := min(columns-1, int(float64(b.Peak)/float64(b.Whole)*float64(columns)))
	if b.Peak <= max(b.Part, b.More) || at < used {
		return bar + p.Trough(columns-used)
	}
	return bar + p.Trough(at-used) + p.Pick("│", "|") + p.Trough(columns-at-1)
}

// fill is the number of full columns, and the eighths of the next.
func (p Painter) fill(part, whole uint64, columns int) (full, eighth int) {
	if part == 0 || columns <= 0 {
		return 0, 0
	}
	n := int(min(1, float64(part)/float64(whole)) * float64(columns) * 8)
	if p.ASCII {
		return max(1, n/8), 0
	}
	n = max(1, n)
	return n / 8, n % 8
}

// Trough is n columns of an empty bar.
func (p Painter) Trough(n int) string {
	return p.Paint(Dim, strings.Repeat(p.Pick("·", "."), max(0, n)))
}

// A Gap is a bar that fills from both ends, in columns: the L1 of a core, where
// circular buffers grow from the base up and buffers from the top down.
type Gap struct{ Base, Free, Top int }

// NewGap divides the columns. A part above 0 has at least one.
func NewGap(base, top, whole uint64, columns int) Gap {
	if whole == 0 || columns < 2 {
		return Gap{Free: columns}
	}
	part := func(n uint64) int {
		if n == 0 {
			return 0
		}
		return min(columns-1, max(1, int(float64(n)/float64(whole)*float64(columns)+0.5)))
	}
	g := Gap{Base: part(base), Top: part(top)}
	// both were rounded up, but the free part must be visible
	room := columns
	if base+top < whole && columns >= 3 {
		room--
	}
	if over := g.Base + g.Top - room; over > 0 && g.Base > g.Top {
		g.Base -= over
	} else if over > 0 {
		g.Top -= over
	}
	g.Free = columns - g.Base - g.Top
	return g
}

// The parts of a gap's bar, in the style of how full it is.
func (p Painter) Base(g Gap, st Style) string {
	return p.Paint(st, strings.Repeat(p.Pick("▓", "="), g.Base))
}

func (p Painter) Top(g Gap, st Style) string {
	return p.Paint(st, strings.Repeat(p.Pick("█", "#"), g.Top))
}

// DrawGap draws both parts and the free part between them.
func (p Painter) DrawGap(g Gap, base, top Style) string {
	return p.Base(g, base) + p.Trough(g.Free) + p.Top(g, top)
}
