package top

import (
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// A column is a column of the table.
type column struct {
	name  string
	width int // columns, with the blank before it
	// least is the smallest width of the terminal that shows it.
	least int
	cell  func(m *model, r *row, all uint64) (string, page.Style)
}

var columns = []column{
	{"SIZE", 10, 0, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.count == 0 && r.statics > 0 {
			return page.Bytes(r.static), blue
		}
		return page.Bytes(r.bytes), bold
	}},
	{"%", 5, 0, func(m *model, r *row, all uint64) (string, page.Style) {
		if r.count == 0 {
			return "", noStyle
		}
		return page.Percent(r.bytes, all), noStyle
	}},
	{"BUFFERS", 9, 0, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.count == 0 && r.statics > 0 {
			return formatShort(r.statics) + " " + page.Plural(r.statics, "CB"), blue
		}
		return formatCount(r.count), noStyle
	}},
	{"GROWTH", 12, 0, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.grown == 0 {
			return m.Pick("·", "."), dim
		}
		return "+" + page.Bytes(r.grown), page.Red
	}},
	{"CBs", 11, 110, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.statics == 0 {
			return "", noStyle
		}
		return page.Bytes(r.static), blue
	}},
	{"RATE/s", 8, 100, func(m *model, r *row, _ uint64) (string, page.Style) {
		switch {
		case r.rate == 0:
			return m.Pick("·", "."), dim
		case r.rate < 10:
			return fmt.Sprintf("%.1f", r.rate), yellow
		}
		return formatShort(uint64(r.rate + 0.5)), yellow
	}},
	{"FOR", 8, 72, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.since == 0 {
			return "earlier", dim
		}
		return formatAge(m.present.NowNs - min(m.present.NowNs, r.since)), noStyle
	}},
	{"CHIPS", 7, 130, func(m *model, r *row, _ uint64) (string, page.Style) {
		return fmt.Sprint(len(r.devices)), noStyle
	}},
	{"PID", 9, 150, func(m *model, r *row, _ uint64) (string, page.Style) {
		if len(r.pids) > 1 {
			return fmt.Sprintf("%d procs", len(r.pids)), dim
		}
		return fmt.Sprint(r.pids[0]), noStyle
	}},
	{"IN", 6, 0, func(m *model, r *row, _ uint64) (string, page.Style) {
		if r.regions.String() == "CB" {
			return "CB", blue
		}
		return r.regions.String(), cyan
	}},
}

// shareColumns is the width of the bar of a row's share.
const shareColumns = 10

// columns returns the columns that fit.
func (m *model) columns() (list []column) {
	for _, c := range columns {
		// growth replaces less important columns
		if c.name == "FOR" || c.name == "%" {
			if m.present.Marked && m.width < 100 {
				continue
			}
		}
		if m.width < c.least || c.name == "GROWTH" && !m.present.Marked || c.name == "RATE/s" && (m.once || !m.present.Live()) ||
			c.name == "CBs" && !mixed(m.by) {
			continue
		}
		list = append(list, c)
	}
	return list
}

func (m *model) shares() bool { return m.width >= 120 }

// tableHead returns the names of the columns.
func (m *model) tableHead() string {
	var line strings.Builder
	sorted := map[string]string{"size": "SIZE", "count": "BUFFERS", "growth": "GROWTH", "rate": "RATE/s", "age": "FOR", "name": "name"}[orders[m.order].name]
	for _, c := range m.columns() {
		name := c.name
		if name == sorted {
			name += m.arrow()
		}
		line.WriteString(m.right(name, c.width))
	}
	if m.shares() {
		line.WriteString(page.Blank(shareColumns + 2))
	}
	title := "  " + strings.ToUpper(groupings[m.by])
	if sorted == "name" {
		title += m.arrow()
	}
	line.WriteString(title)
	return m.Paint(head, m.left(line.String(), m.width))
}

// arrow returns the direction of the order.
func (m *model) arrow() string {
	down := orders[m.order].name != "name"
	if down != m.reversed {
		return m.Pick("▼", "v")
	}
	return m.Pick("▲", "^")
}

// tableRows returns the rows that fit, around the selected one.
func (m *model) tableRows() []string {
	if len(m.rows) == 0 {
		return []string{"", m.Cut(" "+m.nothing(), m.width)}
	}
	first, last := 0, len(m.rows)
	if m.once {
		last = min(last, m.limit)
	} else {
		m.offset = max(m.cursor-m.tableHeight+1, min(m.offset, m.cursor, max(0, len(m.rows)-m.tableHeight)))
		first = m.offset
		last = min(len(m.rows), first+m.tableHeight)
	}
	var all uint64
	for _, r := range m.rows {
		all += r.bytes
	}
	var lines []string
	for i, r := range m.rows[first:last] {
		lines = append(lines, m.tableRow(r, all, first+i == m.cursor && !m.once))
	}
	if m.once && last < len(m.rows) {
		lines = append(lines, m.Paint(dim, fmt.Sprintf(" and %s more", page.Grouped(uint64(len(m.rows)-last)))))
	}
	return lines
}

func (m *model) tableRow(r *row, all uint64, selected bool) string {
	p := m.painter
	if selected { // all of the line in one style
		p = painter{page.Painter{ASCII: m.ASCII}}
	}
	var line strings.Builder
	columns := 0
	for _, c := range m.columns() {
		text, st := c.cell(m, r, all)
		line.WriteString(p.Paint(st, p.right(text, c.width)))
		columns += c.width
	}
	if m.shares() {
		st := page.Style(green)
		if r.count == 0 {
			st = dim
		}
		line.WriteString("  " + p.DrawBar(page.Bar{Part: r.bytes, Whole: max(all, 1), Style: st}, shareColumns))
		columns += shareColumns + 2
	}
	line.WriteString("  " + p.rowTitle(r, m.width-columns-2))
	if selected {
		return m.Paint(page.Reverse, m.left(line.String(), m.width))
	}
	return line.String()
}

// rowTitle returns the title of a row in at most n columns. A long operation is cut first,
// because the line of a stack is more important.
func (p painter) rowTitle(r *row, n int) string {
	op, call := p.clean(r.name.Op), p.clean(r.name.Call.String())
	if call == "" {
		title := p.clean(r.title)
		if strings.HasPrefix(title, "/") {
			return p.cutLeft(title, n)
		}
		return p.Cut(title, n)
	}
	separator := p.Pick(" · ", " - ")
	if op == "" {
		separator = ""
	}
	caller, kept := p.caller(r), 0
	if r.twin { // which the callers tell apart: their lines matter more than what the functions are called
		if page.Width(op)+page.Width(separator)+page.Width(call)+page.Width(caller) > n {
			short := *r
			short.name.Call.Function, short.caller.Function = "", ""
			call, caller = p.clean(short.name.Call.String()), p.caller(&short)
		}
		kept = min(page.Width(caller), n/3)
	}
	op = p.Cut(op, max((n-kept)/3, n-kept-page.Width(separator)-page.Width(call)))
	title := p.Paint(cyan, op) + p.Paint(dim, separator) + p.Cut(call, n-kept-page.Width(op)-page.Width(separator))
	if room := n - page.Width(title); room >= min(6, page.Width(caller)) {
		title += p.Paint(dim, p.Cut(caller, room))
	}
	return title
}

// caller returns the caller that distinguishes a row from its twins; "" if it is not known.
func (p painter) caller(r *row) string {
	if r.caller.Line == 0 {
		return ""
	}
	caller := p.clean(r.caller.String())
	if r.caller.File == r.name.Call.File {
		caller = caller[strings.IndexByte(caller, ':'):]
	}
	return p.Pick(" ← ", " < ") + caller
}

// nothing returns the reason for an empty table.
func (m *model) nothing() string {
	f := &m.filter
	none := !slices.ContainsFunc(m.present.CallSites, func(h aggregate.CallSite) bool { return h.Count > 0 })
	switch {
	case none && m.present.Ended != "":
		return "Nothing is allocated at the end; `ttmem peak` shows what was."
	case none:
		return "Nothing is allocated now."
	case f.text != "":
		return fmt.Sprintf("No live allocation matches %q: Esc clears the filter.", f.text)
	}
	return "No matching allocations: Esc clears the filter."
}
