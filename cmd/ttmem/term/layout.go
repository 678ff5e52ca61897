package term

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/cmd/ttmem/page"
)

// leastColumns is the least width that pages are fitted to.
const leastColumns = 40

// LayoutFor fits a page to a file. The width of a terminal is what it reports, else COLUMNS.
func LayoutFor(f *os.File) page.Layout {
	l := page.Layout{Painter: page.Painter{ASCII: !UTF8()}}
	if !IsTerminal(f) {
		return l
	}
	l.Color, l.Width = os.Getenv("NO_COLOR") == "", 80
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		columns = int(size.Col)
	}
	if columns > 0 {
		l.Width = max(leastColumns, columns)
	}
	return l
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
