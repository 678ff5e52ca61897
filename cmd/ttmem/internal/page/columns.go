package page

import "strings"

// Columns are the widths of a table's columns; a negative one is aligned to the left. A text,
// such as a name, follows them.
type Columns []int

// Line returns the columns of a row. It leaves out cells without a column or with a column of
// width 0.
func (c Columns) Line(cells ...string) string {
	var line strings.Builder
	for i, columns := range c {
		switch {
		case columns > 0:
			line.WriteString(Right(cells[i], columns))
		case columns < 0:
			line.WriteString(Left(cells[i], -columns))
		}
	}
	return line.String()
}

// Width is the width of all columns.
func (c Columns) Width() (columns int) {
	for _, n := range c {
		columns += max(n, -n)
	}
	return columns
}
