package page

import (
	"bufio"
	"cmp"
	"fmt"
	"strings"
)

// A Layout fits a page to its destination.
type Layout struct {
	Painter
	// Width is the terminal's; 0: lines may have any length, as in a file or a pipe.
	Width int
}

// Separated returns the key of a group with separators that the terminal can show instead of " · "
// and " ← ", and with an ellipsis that it can show.
func (l Layout) Separated(key string) string {
	return strings.NewReplacer(" · ", l.Separator(), " ← ", l.Arrow(), "…", l.Pick("…", "...")).Replace(key)
}

// Write writes a text, indented, in as many lines as needed.
func (l Layout) Write(out *bufio.Writer, indent int, st Style, text string) {
	for _, line := range l.Lines(text, indent) {
		fmt.Fprintln(out, Blank(indent)+l.Paint(st, line))
	}
}

// Lines breaks a text into lines that fit after an indent.
func (l Layout) Lines(text string, indent int) []string {
	if l.Width == 0 {
		return []string{text}
	}
	return Fold(text, l.Width-indent)
}

// WriteTitle writes a title with a remark beside it, or below it if there is no room.
func (l Layout) WriteTitle(out *bufio.Writer, indent, title, remark string) {
	l.WriteStyled(out, indent, Bold, title, remark)
}

// WriteStyled is WriteTitle with a title in another style.
func (l Layout) WriteStyled(out *bufio.Writer, indent string, st Style, title, remark string) {
	if l.Width == 0 || Width(indent+title+remark) <= l.Width {
		fmt.Fprintln(out, indent+l.Paint(st, title)+l.Paint(Dim, remark))
		return
	}
	l.Write(out, Width(indent), st, title)
	l.Write(out, Width(indent)+1, Dim, strings.TrimPrefix(strings.TrimSpace(remark), strings.TrimSpace(l.Separator())))
}

// WriteHead writes the heads of columns, and the head of the text beside them if there is room.
func (l Layout) WriteHead(out *bufio.Writer, columns, beside string) {
	if l.Width > 0 && l.Width-Width(columns) < max(LeastBeside, Width(beside)) {
		beside = ""
	}
	fmt.Fprintln(out, l.Paint(Dim, strings.TrimRight(columns+beside, " ")))
}

// LeastBeside is the minimum width of text beside columns; narrower text goes below them.
const LeastBeside = 30

// Beside writes a text beside columns on the same line, or below them if there is no room,
// and returns the text's indent.
func (l Layout) Beside(out *bufio.Writer, columns string, st Style, text string) (indent int) {
	if indent = Width(columns); l.Width > 0 && l.Width-indent < min(LeastBeside, Width(text)) {
		fmt.Fprintln(out, strings.TrimRight(columns, " "))
		l.Write(out, NameIndent, st, text)
		return NameIndent
	}
	for _, line := range l.Lines(text, indent) {
		fmt.Fprintln(out, columns+l.Paint(st, line))
		columns = Blank(indent)
	}
	return indent
}

// Whole writes a text beside columns on the same line, or below them if it does not fit
// completely, and returns the indent of what belongs below it.
func (l Layout) Whole(out *bufio.Writer, columns string, st Style, text string) (indent int) {
	if l.Width == 0 || Width(columns)+Width(text) <= l.Width {
		fmt.Fprintln(out, columns+l.Paint(st, text))
		return NameIndent
	}
	fmt.Fprintln(out, strings.TrimRight(columns, " "))
	l.Write(out, NameIndent, st, text)
	return NameIndent
}

// NameIndent is the indent of a name on its own line.
const NameIndent = 6

// Columns returns the width at which sentences are broken, even if lines may have any length.
func (l Layout) Columns() int { return cmp.Or(l.Width, 80) }

// Sized returns the layout with the width at which sentences are broken.
func (l Layout) Sized() Layout {
	l.Width = l.Columns()
	return l
}

// SizeColumns is the width of a column of bytes.
const SizeColumns = 11
