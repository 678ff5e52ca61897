package page

import "strings"

// A Painter draws bars and colours with what the terminal can show.
type Painter struct {
	Color, ASCII bool
}

// Style is an SGR parameter of the terminal.
type Style string

const (
	NoStyle Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Red     Style = "31"
	BoldRed Style = "1;31"
	Green   Style = "32"
	Yellow  Style = "33"
)

// Paint puts s into the style, if there are colours.
func (p Painter) Paint(st Style, s string) string {
	if !p.Color || st == NoStyle || strings.TrimSpace(s) == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// Level is the colour of part in whole: green has room, yellow is at 70 % and
// red at 90 %.
func Level(part, whole uint64) Style {
	switch share := float64(part) / float64(max(1, whole)); {
	case part == 0 || whole == 0:
		return NoStyle
	case share >= 0.9:
		return Red
	case share >= 0.7:
		return Yellow
	}
	return Green
}

// Pick is the Unicode or the ASCII form of something.
func (p Painter) Pick(unicode, ascii string) string {
	if p.ASCII {
		return ascii
	}
	return unicode
}

// Trough is n columns of an empty bar.
func (p Painter) Trough(n int) string {
	return p.Paint(Dim, strings.Repeat(p.Pick("·", "."), max(0, n)))
}

// eighths are the partial blocks by how many eighths they fill.
var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// Bar draws part of whole from the left. What is there at all is seen.
func (p Painter) Bar(part, whole uint64, columns int) string {
	if whole == 0 {
		return strings.Repeat(" ", columns)
	}
	share := min(1, float64(part)/float64(whole))
	filled := ""
	if p.ASCII {
		n := int(share * float64(columns))
		if part > 0 {
			n = max(1, n)
		}
		filled = strings.Repeat("#", n)
	} else {
		n := int(share * float64(columns) * 8)
		if part > 0 {
			n = max(1, n)
		}
		filled = strings.Repeat("█", n/8) + eighths[n%8]
	}
	return p.Paint(Level(part, whole), filled) + p.Trough(columns-Width(filled))
}

// A Gap is a bar that fills from both ends, in columns: the L1 of a core, where
// circular buffers grow from the base up and buffers from the top down.
type Gap struct{ Base, Free, Top int }

// NewGap divides the columns. What is there at all is seen.
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
	// Both were rounded up.
	if over := g.Base + g.Top - columns; over > 0 {
		if g.Base > g.Top {
			g.Base -= over
		} else {
			g.Top -= over
		}
	}
	// What is free is seen too.
	if g.Base+g.Top == columns && base+top < whole && columns >= 3 {
		if g.Base > g.Top {
			g.Base--
		} else {
			g.Top--
		}
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
