package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// listLayout fits a list to where it is printed.
type listLayout struct {
	painter
	// width is the terminal's; 0: what is no terminal takes lines of any length.
	width int
}

// leastColumns is the least width of a terminal that lists are fitted to.
const leastColumns = 40

// listLayoutFor fits to a terminal as wide as it says or, where it does not, as COLUMNS
// does.
func listLayoutFor(f *os.File) listLayout {
	l := listLayout{painter: painter{ascii: !utf8Locale()}}
	if !term.IsTerminal(int(f.Fd())) {
		return l
	}
	l.color, l.width = os.Getenv("NO_COLOR") == "", 80
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		columns = int(size.Col)
	}
	if columns > 0 {
		l.width = max(leastColumns, columns)
	}
	return l
}

// separated is a key of a group as it is shown: those of JSON have names with dots
// between their parts.
func (l listLayout) separated(key string) string {
	return strings.ReplaceAll(key, " · ", l.separator())
}

// write writes a text, indented, in as many lines as it takes.
func (l listLayout) write(out *bufio.Writer, indent int, st style, text string) {
	for _, line := range l.lines(text, indent) {
		fmt.Fprintln(out, left("", indent)+l.paint(st, line))
	}
}

// lines breaks a text into lines that have room behind an indent.
func (l listLayout) lines(text string, indent int) []string {
	if l.width == 0 {
		return []string{text}
	}
	return fold(text, l.width-indent)
}

// writeTitle writes a title and what there is to say beside it, or below where there is
// no room.
func (l listLayout) writeTitle(out *bufio.Writer, indent, title, of string) {
	if l.width == 0 || width(indent+title+of) <= l.width {
		fmt.Fprintln(out, indent+l.paint(bold, title)+l.paint(dim, of))
		return
	}
	l.write(out, width(indent), bold, title)
	l.write(out, width(indent)+1, dim, strings.TrimPrefix(strings.TrimSpace(of), strings.TrimSpace(l.separator())))
}

// writeHead writes the head of columns, and of what is beside them where there is room.
func (l listLayout) writeHead(out *bufio.Writer, columns, beside string) {
	if l.width > 0 && l.width-width(columns) < max(leastBeside, width(beside)) {
		beside = ""
	}
	fmt.Fprintln(out, l.paint(dim, strings.TrimRight(columns+beside, " ")))
}

// leastBeside is how many columns text beside others has at least; with fewer it is below.
const leastBeside = 30

var colorCodes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// beside writes a text beside columns of the same line, or below them where there is no
// room, and is how far it is indented.
func (l listLayout) beside(out *bufio.Writer, columns string, st style, text string) (indent int) {
	if indent = width(colorCodes.ReplaceAllString(columns, "")); l.width > 0 && l.width-indent < min(leastBeside, width(text)) {
		fmt.Fprintln(out, strings.TrimRight(columns, " "))
		l.write(out, nameIndent, st, text)
		return nameIndent
	}
	for _, line := range l.lines(text, indent) {
		fmt.Fprintln(out, columns+l.paint(st, line))
		columns = left("", indent)
	}
	return indent
}

// fold is wrap, with words cut that are longer than a line: names of templates and paths,
// after a part of them where that is possible.
func fold(s string, limit int) (lines []string) {
	limit = max(limit, 20)
	for _, line := range wrap(s, limit) {
		for width(line) > limit {
			head := string([]rune(line)[:limit])
			if i := strings.LastIndexAny(head, ":/,"); i > len(head)/2 {
				head = head[:i+1]
			}
			lines = append(lines, head)
			line = line[len(head):]
		}
		lines = append(lines, line)
	}
	return lines
}
