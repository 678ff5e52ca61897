package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A painter is a page.Painter for lines of a fixed width.
type painter struct{ page.Painter }

// clean makes s one line that the terminal can show: names and output of programs are not
// trusted.
func (p painter) clean(s string) string {
	s = event.Printable(s)
	if !p.ASCII {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '·':
			return '-'
		case r == '←':
			return '<'
		case r == '…':
			return '~'
		case r > '~':
			return '?'
		}
		return r
	}, s)
}

// cutLeft returns the end of s in at most n columns, the important part of a path.
func (p painter) cutLeft(s string, n int) string {
	if w := page.Width(s); w > n {
		return ansi.TruncateLeft(s, w-n+1, p.Pick("…", "~"))
	}
	return s
}

// cutOwner returns the path of an owner in at most n columns. Its functions, such as " of main() of run()", matter
// least, and the end of what is before them most.
func (p painter) cutOwner(path string, n int) string {
	if page.Width(path) > n {
		path, _, _ = strings.Cut(path, " of ")
	}
	return p.cutLeft(path, n)
}

// left and right return s in exactly n columns.
func (p painter) left(s string, n int) string { return page.Left(p.Cut(s, n), n) }

func (p painter) right(s string, n int) string { return page.Right(p.Cut(s, n), n) }

// ends returns a line of n columns with a text at each end. The left one is cut if necessary.
func (p painter) ends(a, b string, n int) string {
	a = p.Cut(a, max(0, n-page.Width(b)-1))
	return p.Cut(a+page.Right(b, n-page.Width(a)), n)
}
