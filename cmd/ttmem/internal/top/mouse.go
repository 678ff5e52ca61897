package top

import "slices"

// A zone is a part of a line that reacts to clicks.
type zone struct {
	y, from, to int
	click       func() request
}

// zone makes columns of a line react to clicks.
func (m *model) zone(y, from, to int, click func() request) {
	m.zones = append(m.zones, zone{y, from, to, click})
}

// keyZone makes a click on columns of a line act like a key.
func (m *model) keyZone(y, from, to int, key string) {
	m.zone(y, from, to, func() request { return m.press(key) })
}

// click handles a click.
func (m *model) click(x, y int) request {
	m.answer = ""
	i := slices.IndexFunc(m.zones, func(z zone) bool { return z.y == y && x >= z.from && x < z.to })
	if m.prompt != promptNone || i < 0 {
		return nothing
	}
	return m.zones[i].click()
}

// clickRow selects a row, or opens it if it is selected.
func (m *model) clickRow(at int) request {
	if at == m.cursor {
		m.open()
	} else {
		m.move(at - m.cursor)
	}
	return nothing
}

// sortByColumn sorts by a column, or reverses the order if the rows are already sorted by it.
func (m *model) sortByColumn(name string) request {
	at := slices.IndexFunc(orders, func(o order) bool { return o.column == name })
	switch {
	case at < 0:
	case at == m.order:
		m.reversed = !m.reversed
		m.regroup()
	default:
		m.sortBy(at)
	}
	return nothing
}

// clickProcess selects a process, or all if it is selected.
func (m *model) clickProcess(pid int) request {
	if m.filter.pid == pid {
		pid = 0
	}
	m.filter.pid = pid
	m.regroup()
	return nothing
}

// wheel scrolls by this many lines; on the bar of a recording it moves through the recording.
func (m *model) wheel(y, lines int) request {
	switch {
	case m.present == nil || m.prompt != promptNone:
	case m.reel != nil && m.page == pageTable && y == m.reel.y:
		m.seekTime(0.01 * float64(lines))
		return seek
	case m.page == pageTable:
		m.move(lines)
	default:
		m.scroll += lines
	}
	return nothing
}

// drag handles a movement of the mouse with its button pressed.
func (m *model) drag(x, y int) request {
	if m.reel == nil || m.page != pageTable || y != m.reel.y {
		return nothing
	}
	return m.click(x, y)
}
