package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/cmd/ttmem/page"
)

// leastColumns is the least width of a terminal that lists are fitted to.
const leastColumns = 40

// listLayoutFor fits to a terminal as wide as it says or, where it does not, as COLUMNS
// does.
func listLayoutFor(f *os.File) page.Layout {
	l := page.Layout{Painter: page.Painter{ASCII: !utf8Locale()}}
	if !isTerminal(f) {
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

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
