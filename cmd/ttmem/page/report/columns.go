package report

// tableColumns are the widths of the columns of a chip's table behind the label,
// with the blanks in front of them; 0 for a column without room.
type tableColumns struct{ bar, percent, peak, capacity, end, count int }

const (
	labelColumns = 13
	bytesColumns = 10
	// leastBar and mostBar are the widths that bars may have.
	leastBar, mostBar = 8, 48
)

// columnsFor fits the columns to the width. Columns whose content is shown elsewhere too go first:
// bars, blanks, the number of buffers, percents, and then capacities.
func columnsFor(width int) tableColumns {
	c := tableColumns{percent: 1 + 4, peak: 1 + bytesColumns, capacity: 1 + bytesColumns, end: 2 + bytesColumns, count: 2 + 7}
	room := func() int {
		return width - (1 + labelColumns + c.percent + c.peak + c.capacity + c.end + c.count)
	}
	if n := room() - 1; n >= leastBar {
		c.bar = min(n, mostBar)
	}
	if room() < 0 {
		c.end, c.count = c.end-1, c.count-1
	}
	for _, column := range []*int{&c.count, &c.percent, &c.capacity} {
		if room() < 0 {
			*column = 0
		}
	}
	return c
}
