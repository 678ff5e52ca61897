package table

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A List is rows as text: a line for each with its columns and its title. The zero value of each field is
// of use.
type List struct {
	Columns Columns
	Rows    []*alloc.Row
	// Limit is the maximum number of rows; 0: all. The sum of the others has a row.
	Limit int
	// Head is the head of the titles; "" for none.
	Head string
	// Title is the title of a row; nil: its look.
	Title func(*alloc.Row) string
	// Style is that of a title.
	Style func(*alloc.Row) page.Style
	// Whole puts a title that does not fit beside the columns below them, instead of breaking it.
	Whole bool
	// Below writes what is below a title, before the callers.
	Below func(indent int, r *alloc.Row)
}

// Write writes the list.
func (l *List) Write(out *bufio.Writer, layout page.Layout) {
	l.WriteHead(out, layout)
	l.WriteRows(out, layout)
}

// WriteHead writes the heads of the columns.
func (l *List) WriteHead(out *bufio.Writer, layout page.Layout) {
	line := ""
	for _, c := range l.fitting(layout) {
		line += page.Right(c.Head, c.Width)
	}
	if layout.Width == 0 || layout.Width-page.Width(line)-len("  ") >= max(l.beside(), page.Width(l.Head)) {
		line += "  " + l.Head
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, strings.TrimRight(line, " ")))
}

// WriteRows writes the rows, without heads.
func (l *List) WriteRows(out *bufio.Writer, layout page.Layout) {
	shown, rest := Limited(l.Rows, l.Limit)
	columns := l.fitting(layout)
	line := func(r *alloc.Row) (line string) {
		for _, c := range columns {
			text := page.Right(c.Text(r), c.Width)
			if c.Style != nil {
				text = layout.Paint(c.Style(r), text)
			}
			line += text
		}
		return line + "  "
	}
	for _, r := range shown {
		title, style := r.Text, page.NoStyle
		if l.Title != nil {
			title = l.Title(r)
		}
		if l.Style != nil {
			style = l.Style(r)
		}
		write := layout.Beside
		if l.Whole {
			write = layout.Whole
		}
		indent := write(out, line(r), style, layout.Separated(title))
		if l.Below != nil {
			l.Below(indent, r)
		}
		layout.WriteCallers(out, indent+2, r.Callers)
	}
	if rest == nil {
		return
	}
	if figures := line(rest); strings.TrimSpace(figures) != "" {
		layout.Beside(out, figures, page.NoStyle, rest.Text)
	} else {
		fmt.Fprintln(out, " "+rest.Text)
	}
}

// beside is the least room for titles beside the columns.
func (l *List) beside() int {
	if l.Whole {
		return 0
	}
	return page.LeastBeside
}

// IsNarrow reports whether the layout has no room for spare columns.
func (l *List) IsNarrow(layout page.Layout) bool {
	width := 2 + l.beside()
	for _, c := range l.present() {
		width += c.Width
	}
	return layout.Width > 0 && width > layout.Width
}

// present returns the columns that have values.
func (l *List) present() Columns {
	shown, rest := Limited(l.Rows, l.Limit)
	if rest != nil {
		shown = append(slices.Clip(shown), rest)
	}
	return slices.DeleteFunc(slices.Clone(l.Columns), func(c Column) bool { return c.Has != nil && !slices.ContainsFunc(shown, c.Has) })
}

// fitting returns the columns that have room and values.
func (l *List) fitting(layout page.Layout) (columns Columns) {
	narrow := l.IsNarrow(layout)
	for _, c := range l.present() {
		if c.Width > 0 && !(narrow && c.Spare) {
			columns = append(columns, c)
		}
	}
	return columns
}

// Held writes who holds the buffers of a row below its title.
func Held(out *bufio.Writer, layout page.Layout) func(int, *alloc.Row) {
	return func(indent int, r *alloc.Row) {
		if held := r.Holders.Text(layout.Separator()); held != "" {
			layout.Write(out, indent+2, page.NoStyle, held)
		}
	}
}
