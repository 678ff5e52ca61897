package top

import (
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A column is a column of a table.
type column[T any] struct {
	name  string
	width int // columns, with the blank before it
	// least is the minimum width of the terminal for the column.
	least int
	cell  func(m *model, of T) (string, page.Style)
}

// heads returns the names of the columns.
func heads[T any](p painter, columns []column[T]) (line string) {
	for _, c := range columns {
		line += p.right(c.name, c.width)
	}
	return line
}

// cells returns the columns of a row.
func cells[T any](m *model, p painter, columns []column[T], of T) (line string) {
	for _, c := range columns {
		text, st := c.cell(m, of)
		line += p.Paint(st, p.right(text, c.width))
	}
	return line
}

var columns = []column[*alloc.Row]{
	{"ALL BANKS", 10, 0, func(m *model, r *alloc.Row) (string, page.Style) {
		if r.Amounts[live].Count == 0 && r.Amounts[statics].Count > 0 {
			return page.KiB(r.Amounts[statics].Bytes), page.Blue
		}
		return page.Bytes(r.Amounts[live].Bytes), page.Bold
	}},
	{"%", 5, 0, func(m *model, r *alloc.Row) (string, page.Style) {
		if r.Amounts[live].Count == 0 {
			return "/core", page.Blue // of the size, instead of a share
		}
		return page.Percent(r.Amounts[live].Bytes, m.bytes), page.NoStyle
	}},
	{"BUFFERS", 9, 0, func(m *model, r *alloc.Row) (string, page.Style) {
		if r.Amounts[live].Count == 0 && r.Amounts[statics].Count > 0 {
			return formatShort(r.Amounts[statics].Count) + " " + page.Plural(r.Amounts[statics].Count, "CB"), page.Blue
		}
		return formatCount(r.Amounts[live].Count), page.NoStyle
	}},
	{"GROWTH", 12, 0, func(m *model, r *alloc.Row) (string, page.Style) {
		switch {
		case r.Amounts[grown].Bytes > 0:
			return "+" + page.Bytes(r.Amounts[grown].Bytes), page.Red
		case r.Amounts[grownStatics].Count > 0:
			return "+" + formatShort(r.Amounts[grownStatics].Count) + " " + page.Plural(r.Amounts[grownStatics].Count, "CB"), page.Blue
		}
		return m.Pick("·", "."), page.Dim
	}},
	{"CBs", 11, 110, func(m *model, r *alloc.Row) (string, page.Style) {
		if r.Amounts[statics].Count == 0 {
			return "", page.NoStyle
		}
		return page.KiB(r.Amounts[statics].Bytes), page.Blue
	}},
	{"RATE/s", 8, 100, func(m *model, r *alloc.Row) (string, page.Style) {
		switch {
		case r.Rate == 0:
			return m.Pick("·", "."), page.Dim
		case r.Rate < 10:
			return fmt.Sprintf("%.1f", r.Rate), page.Yellow
		}
		return formatShort(uint64(r.Rate + 0.5)), page.Yellow
	}},
	{"FOR", 8, 72, func(m *model, r *alloc.Row) (string, page.Style) {
		if r.OldestNs == 0 {
			return "earlier", page.Dim
		}
		return formatAge(r.OldestNs), page.NoStyle
	}},
	{"CHIPS", 7, 130, func(m *model, r *alloc.Row) (string, page.Style) {
		return fmt.Sprint(len(devices(r))), page.NoStyle
	}},
	{"PID", 9, 150, func(m *model, r *alloc.Row) (string, page.Style) {
		if len(pids(r)) > 1 {
			return fmt.Sprintf("%d procs", len(pids(r))), page.Dim
		}
		return fmt.Sprint(pids(r)[0]), page.NoStyle
	}},
	{"IN", 6, 0, func(m *model, r *alloc.Row) (string, page.Style) {
		if regionOf(r) == "CB" {
			return "CB", page.Blue
		}
		return regionOf(r), page.Cyan
	}},
	{heldBy, 30, 110, func(m *model, r *alloc.Row) (string, page.Style) {
		if len(r.Holders) == 0 {
			return m.Pick("·", "."), page.Dim
		}
		more := ""
		if n := len(r.Holders) - 1; n > 0 {
			more = fmt.Sprintf(" +%d", n)
		}
		return m.cutOwner(m.clean(r.Holders[0].Path), 28-len(more)) + more, page.NoStyle
	}},
}

// heldBy is the column of the holder with the most bytes.
const heldBy = "HELD BY"

// shareColumns is the width of the bar of a row's share.
const shareColumns = 10

// columns returns the columns that fit.
func (m *model) columns() []column[*alloc.Row] {
	return slices.DeleteFunc(slices.Clone(columns), func(c column[*alloc.Row]) bool {
		return m.width < c.least || c.name == "GROWTH" && !m.present.Marked ||
			// growth replaces less important columns
			(c.name == "FOR" || c.name == "%") && m.present.Marked && m.width < 100 ||
			c.name == "RATE/s" && (m.once || !m.live()) || c.name == "CBs" && !mixed(m.by) ||
			c.name == heldBy && (!m.held || groupings[m.by] == "owner")
	})
}

func (m *model) shares() bool { return m.width >= 120 }

// tableHead returns the names of the columns, with the direction of the order. A click on one
// sorts by it. It is line y.
func (m *model) tableHead(y int) string {
	down := orders[m.order].name != "name"
	arrow := m.Pick("▲", "^")
	if down != m.reversed {
		arrow = m.Pick("▼", "v")
	}
	list, from := m.columns(), 0
	for i := range list {
		name, to := list[i].name, from+list[i].width
		m.zone(y, from, to, func() request { return m.sortByColumn(name) })
		from = to
		if name == orders[m.order].column {
			list[i].name += arrow
		}
	}
	m.zone(y, from, m.width, func() request { return m.sortByColumn("") })
	line := heads(m.painter, list)
	if m.shares() {
		line += page.Blank(shareColumns + 2)
	}
	line += "  " + strings.ToUpper(groupings[m.by])
	if !down {
		line += arrow
	}
	return m.Paint(page.OnGreen, m.left(line, m.width))
}

// tableRows returns the rows that fit, around the selected one. A click selects a row, and opens
// the selected one. They begin at line y.
func (m *model) tableRows(y int) []string {
	if len(m.rows) == 0 {
		return []string{"", m.Cut(" "+m.nothing(), m.width)}
	}
	room := min(len(m.rows), m.tableHeight)
	m.offset = max(m.cursor-room+1, min(m.offset, m.cursor, len(m.rows)-room))
	var lines []string
	shown := m.rows[m.offset:][:room]
	alloc.Distinguish(alloc.SitesOf(shown))
	for i, r := range shown {
		at := m.offset + i
		m.zone(y+i, 0, m.width, func() request { return m.clickRow(at) })
		lines = append(lines, m.tableRow(r, at == m.cursor && !m.once))
	}
	if hidden := len(m.rows) - room; m.once && hidden > 0 {
		lines = append(lines, m.Paint(page.Dim, fmt.Sprintf(" and %s more", page.Grouped(hidden))))
	}
	return lines
}

func (m *model) tableRow(r *alloc.Row, selected bool) string {
	p := m.painter
	if selected { // the whole line has one style
		p = painter{page.Painter{ASCII: m.ASCII}}
	}
	shown := m.columns()
	line := cells(m, p, shown, r)
	if m.shares() {
		st := page.Green
		if r.Amounts[live].Count == 0 {
			st = page.Dim
		}
		line += "  " + p.DrawBar(page.Bar{Part: r.Amounts[live].Bytes, Whole: max(m.bytes, 1), Style: st}, shareColumns)
	}
	title := r
	if len(r.Holders) > 0 && r.Stack == nil && slices.ContainsFunc(shown, func(c column[*alloc.Row]) bool { return c.name == heldBy }) {
		site, other := *r.Site, *r // the holder has its column
		site.Text = alloc.Unknown(nil, true)
		other.Site, title = &site, &other
	}
	line += "  " + p.rowTitle(title, m.width-page.Width(line)-2)
	if selected {
		return m.Paint(page.Reverse, m.left(line, m.width))
	}
	return line
}

// mixText names the buffers of a group that are no tensors. A row by stack has its class in its title.
func mixText(r *alloc.Row) string {
	if r.Look.Class != nil {
		return ""
	}
	return r.Mix.Text()
}

// rowTitle returns the title of a row in at most n columns: its line, its caller and its operation.
// The line is the most important.
func (p painter) rowTitle(r *alloc.Row, n int) string {
	call, op := p.clean(r.Name.Call.String()), r.Op(p.Separator())
	if call == "" {
		title := p.clean(r.Text) + mixText(r)
		if strings.HasPrefix(title, "/") { // the end of a path is the important part
			return p.cutLeft(title, n)
		}
		return p.Cut(title, n)
	}
	if op != "" {
		op = p.Separator() + op
	}
	caller := r.Caller
	if caller == "" && len(r.Callers) > 0 {
		caller = r.Callers[0]
	}
	if caller != "" {
		caller = p.Arrow() + page.InFileOf(call, p.clean(caller))
	}
	switch {
	case page.Width(call+caller+op) <= n:
	case r.Caller == "": // it distinguishes the row from no other one
		caller = ""
	default: // lines matter more than the names of functions
		call, _, _ = strings.Cut(call, " ")
		if r.Many == "" {
			caller = p.Arrow() + strings.Fields(caller)[1]
		}
		call = p.Cut(call, n-min(page.Width(caller), n/2))
	}
	call = p.Cut(call, n)
	caller = p.Cut(caller, n-page.Width(call))
	if op = p.Cut(op, n-page.Width(call+caller)); page.Width(op) < page.Width(p.Separator())+4 {
		op = ""
	}
	return call + p.Paint(page.Dim, caller) + p.Paint(page.Cyan, op)
}

// nothing returns the reason for an empty table.
func (m *model) nothing() string {
	f := &m.filter
	none := !slices.ContainsFunc(m.present.CallSites, func(h memory.CallSite) bool { return h.Count > 0 })
	switch {
	case none && m.reel != nil:
		return "Nothing is allocated at this moment."
	case none && m.present.Ended != "":
		return "Nothing is allocated at the end; `ttmem peak` shows what was."
	case none:
		return "Nothing is allocated now."
	case f.text != "":
		return fmt.Sprintf("No live allocation matches %q: Esc clears the filter.", f.text)
	}
	return "No matching allocations: Esc clears the filter."
}
