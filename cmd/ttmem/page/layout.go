package page

import (
	"bufio"
	"fmt"
	"regexp"
	"strings"
)

// Layout fits a list to where it is printed.
type Layout struct {
	Painter
	// Width is the terminal's; 0: what is no terminal takes lines of any length.
	Width int
}

// Separated is a key of a group as it is shown: those of JSON have names with dots
// between their parts.
func (l Layout) Separated(key string) string {
	return strings.ReplaceAll(key, " · ", l.Separator())
}

// Write writes a text, indented, in as many lines as it takes.
func (l Layout) Write(out *bufio.Writer, indent int, st Style, text string) {
	for _, line := range l.Lines(text, indent) {
		fmt.Fprintln(out, Left("", indent)+l.Paint(st, line))
	}
}

// Lines breaks a text into lines that have room behind an indent.
func (l Layout) Lines(text string, indent int) []string {
	if l.Width == 0 {
		return []string{text}
	}
	return Fold(text, l.Width-indent)
}

// WriteTitle writes a title and what there is to say beside it, or below where there is
// no room.
func (l Layout) WriteTitle(out *bufio.Writer, indent, title, of string) {
	if l.Width == 0 || Width(indent+title+of) <= l.Width {
		fmt.Fprintln(out, indent+l.Paint(Bold, title)+l.Paint(Dim, of))
		return
	}
	l.Write(out, Width(indent), Bold, title)
	l.Write(out, Width(indent)+1, Dim, strings.TrimPrefix(strings.TrimSpace(of), strings.TrimSpace(l.Separator())))
}

// WriteHead writes the head of columns, and of what is beside them where there is room.
func (l Layout) WriteHead(out *bufio.Writer, columns, beside string) {
	if l.Width > 0 && l.Width-Width(columns) < max(LeastBeside, Width(beside)) {
		beside = ""
	}
	fmt.Fprintln(out, l.Paint(Dim, strings.TrimRight(columns+beside, " ")))
}

// LeastBeside is how many columns text beside others has at least; with fewer it is below.
const LeastBeside = 30

var colorCodes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Beside writes a text beside columns of the same line, or below them where there is no
// room, and is how far it is indented.
func (l Layout) Beside(out *bufio.Writer, columns string, st Style, text string) (indent int) {
	if indent = Width(colorCodes.ReplaceAllString(columns, "")); l.Width > 0 && l.Width-indent < min(LeastBeside, Width(text)) {
		fmt.Fprintln(out, strings.TrimRight(columns, " "))
		l.Write(out, NameIndent, st, text)
		return NameIndent
	}
	for _, line := range l.Lines(text, indent) {
		fmt.Fprintln(out, columns+l.Paint(st, line))
		columns = Left("", indent)
	}
	return indent
}

// NameIndent is how far a name is indented that has a line of its own.
const NameIndent = 6
