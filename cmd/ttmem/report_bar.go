package main

import "strings"

// tableColumns are the widths of the columns of a chip's table behind the label,
// with the blanks in front of them; 0 for what there is no room for.
type tableColumns struct{ bar, percent, peak, capacity, end, count int }

const (
	labelColumns = 13
	bytesColumns = 10
	// leastBar and mostBar are the widths that bars may have.
	leastBar, mostBar = 8, 48
)

// columnsFor fits the columns to the width. What is told elsewhere too goes first:
// bars, blanks, the number of buffers, percents, and then capacities.
func columnsFor(width int) tableColumns {
	c := tableColumns{percent: 1 + 4, peak: 1 + bytesColumns, capacity: 1 + bytesColumns, end: 2 + bytesColumns, count: 2 + 7}
	room := func() int {
		return width - (1 + labelColumns + c.percent + c.peak + c.capacity + c.end + c.count)
	}
	if n := room() - 1; n >= leastBar {
		c.bar = min(n, mostBar)
	}
	if room() < 0 {
		c.end, c.count = c.end-1, c.count-1
	}
	for _, column := range []*int{&c.count, &c.percent, &c.capacity} {
		if room() < 0 {
			*column = 0
		}
	}
	return c
}

// A painter draws bars and colours with what the terminal can do.
type painter struct {
	color, ascii bool
}

// style is an SGR parameter of the terminal.
type style string

const (
	noStyle style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	boldRed style = "1;31"
	green   style = "32"
	yellow  style = "33"
)

// paint puts s into the style, where there are colours.
func (p painter) paint(st style, s string) string {
	if !p.color || st == noStyle || strings.TrimSpace(s) == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// level is the colour of part in whole: green has room, yellow is at 70 % and
// red at 90 %.
func level(part, whole uint64) style {
	switch share := float64(part) / float64(max(1, whole)); {
	case part == 0 || whole == 0:
		return noStyle
	case share >= 0.9:
		return red
	case share >= 0.7:
		return yellow
	}
	return green
}

// pick is the Unicode or the ASCII form of something.
func (p painter) pick(unicode, ascii string) string {
	if p.ascii {
		return ascii
	}
	return unicode
}

// trough is n columns of an empty bar.
func (p painter) trough(n int) string {
	return p.paint(dim, strings.Repeat(p.pick("·", "."), max(0, n)))
}

// eighths are the partial blocks by how many eighths they fill.
var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// bar draws part of whole from the left. What is there at all is seen.
func (p painter) bar(part, whole uint64, columns int) string {
	if whole == 0 {
		return strings.Repeat(" ", columns)
	}
	share := min(1, float64(part)/float64(whole))
	filled := ""
	if p.ascii {
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
	return p.paint(level(part, whole), filled) + p.trough(columns-width(filled))
}

// A gap is a bar that fills from both ends, in columns: the L1 of a core, where
// circular buffers grow from the base up and buffers from the top down.
type gap struct{ base, free, top int }

// newGap divides the columns. What is there at all is seen.
func newGap(base, top, whole uint64, columns int) gap {
	if whole == 0 || columns < 2 {
		return gap{free: columns}
	}
	part := func(n uint64) int {
		if n == 0 {
			return 0
		}
		return min(columns-1, max(1, int(float64(n)/float64(whole)*float64(columns)+0.5)))
	}
	g := gap{base: part(base), top: part(top)}
	// Both were rounded up.
	if over := g.base + g.top - columns; over > 0 {
		if g.base > g.top {
			g.base -= over
		} else {
			g.top -= over
		}
	}
	// What is free is seen too.
	if g.base+g.top == columns && base+top < whole && columns >= 3 {
		if g.base > g.top {
			g.base--
		} else {
			g.top--
		}
	}
	g.free = columns - g.base - g.top
	return g
}

// The parts of a gap's bar, in the style of how full it is.
func (p painter) base(g gap, st style) string {
	return p.paint(st, strings.Repeat(p.pick("▓", "="), g.base))
}

func (p painter) top(g gap, st style) string {
	return p.paint(st, strings.Repeat(p.pick("█", "#"), g.top))
}
