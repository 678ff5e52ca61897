package term

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/cmd/ttmem/internal/page"
)

// leastColumns is the minimum width of pages.
const leastColumns = 40

// A Format is how a command prints: the values of --json and --color.
type Format struct {
	JSON  bool
	Color When
}

// LayoutFor fits a page to a file.
func (o Format) LayoutFor(f *os.File) page.Layout {
	return page.Layout{Painter: page.Painter{Color: o.Colors(f), ASCII: !UTF8()}, Width: Columns(f)}
}

// Columns returns the width of pages: COLUMNS, else the width of the terminal. It is 0 for other
// files, which take lines of any length.
func Columns(f *os.File) int {
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return max(leastColumns, columns)
	}
	if !IsTerminal(f) {
		return 0
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return max(leastColumns, int(size.Col))
	}
	return 80
}

// Rows returns the height of a terminal; 0 for other files, and if it is not known.
func Rows(f *os.File) int {
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		return int(size.Row)
	}
	return 0
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// When is a value of --color.
type When string

// The values of --color. Auto means colours on a terminal that can show them, unless NO_COLOR is
// set.
const (
	Auto   When = "auto"
	Always When = "always"
	Never  When = "never"
)

func (w *When) Set(text string) error {
	switch v := When(text); v {
	case Auto, Always, Never:
		*w = v
		return nil
	}
	return errors.New("choose always, auto or never")
}

func (w *When) String() string { return string(*w) }

func (w *When) Type() string { return "when" }

// Colors reports whether output to a file has colours.
func (o Format) Colors(f *os.File) bool {
	switch o.Color {
	case Always, Never:
		return o.Color == Always
	}
	return IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
