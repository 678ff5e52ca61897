package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"ttmem/cmd/ttmem/page"
)

// A painter writes text and bars with what the terminal can do.
type painter struct {
	// color allows colours, ascii nothing but ASCII, and plain no escapes at all.
	color, ascii, plain bool
}

// style is one of the 16 colours, which follow the user's theme, or another property of
// text.
type style = page.Style

const (
	noStyle       = page.NoStyle
	bold          = page.Bold
	dim           = page.Dim
	reverse style = "7"
	red           = page.Red
	green         = page.Green
	yellow        = page.Yellow
	blue    style = "34"
	cyan    style = "36"
	boldRed       = page.BoldRed
	// label is for the title and the keys, and head for the heads of tables.
	label style = "30;46"
	head  style = "30;42"
	alarm style = "30;41"
	pause style = "30;43"
)

// withoutColor has the replacements of styles without colours.
var withoutColor = map[style]style{
	bold: bold, dim: dim, reverse: reverse, boldRed: bold,
	label: reverse, head: reverse, alarm: reverse, pause: reverse,
}

// paint returns s in the style.
func (p painter) paint(st style, s string) string {
	if !p.color {
		st = withoutColor[st]
	}
	if p.plain || st == noStyle || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// pick returns the Unicode or the ASCII form.
func (p painter) pick(unicode, ascii string) string {
	if p.ascii {
		return ascii
	}
	return unicode
}

// clean makes s one line without control characters, because names and output of programs
// are not trusted.
func (p painter) clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n':
			return ' '
		case r < ' ', r == 0x7f, r >= 0x80 && r < 0xa0, r == 0xfffd && p.ascii:
			return -1
		case r == '·' && p.ascii:
			return '-'
		case r == '…' && p.ascii:
			return '~'
		case r > 0x7e && p.ascii:
			return '?'
		case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return -1 // has no width, or turns the direction
		}
		return r
	}, s)
}

// width returns the number of columns of s.
func width(s string) int { return ansi.StringWidth(s) }

// cut returns s in at most n columns, with a mark if it was cut.
func (p painter) cut(s string, n int) string {
	if width(s) <= n {
		return s
	}
	return ansi.Truncate(s, max(0, n), p.pick("…", "~"))
}

// cutLeft returns the end of s in at most n columns, the important part of a path.
func (p painter) cutLeft(s string, n int) string {
	if w := width(s); w > n {
		return ansi.TruncateLeft(s, w-n+1, p.pick("…", "~"))
	}
	return s
}

// left and right return s in exactly n columns.
func (p painter) left(s string, n int) string {
	s = p.cut(s, n)
	return s + blank(n-width(s))
}

func (p painter) right(s string, n int) string {
	s = p.cut(s, n)
	return blank(n-width(s)) + s
}

func blank(n int) string { return strings.Repeat(" ", max(0, n)) }

// ends returns a line of n columns with a text at each end. The left one is cut if necessary.
func (p painter) ends(a, b string, n int) string {
	a = p.cut(a, max(0, n-width(b)-1))
	return p.cut(a+blank(n-width(a)-width(b))+b, n)
}
