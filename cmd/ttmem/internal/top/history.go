package top

import (
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/chart"
	"ttmem/tracer/event"
)

// A place is a region of a chip.
type place struct {
	device int
	region event.Region
}

// histories are the timelines of the bars, by place. All begin at the same time, and end at
// endNs.
type histories struct {
	lines map[place]memory.RegionTimeline
	endNs uint64
	// cursorNs is the shown time of a recording; 0: the present.
	cursorNs uint64
}

func newHistories(list []memory.RegionTimeline, endNs uint64) histories {
	h := histories{lines: make(map[place]memory.RegionTimeline, len(list)), endNs: endNs}
	for _, line := range list {
		h.lines[place{line.Device, line.Region}] = line
	}
	return h
}

// of returns the timelines of a region of the chips: the least and the most of each.
func (h *histories) of(g chipGroup, region event.Region) (all, static *memory.Timeline) {
	join := func(to **memory.Timeline, line *memory.Timeline) {
		switch {
		case line == nil:
		case *to == nil:
			*to = line
		default:
			*to = (*to).With(line, h.endNs)
		}
	}
	for i := range g {
		line := h.lines[place{g[i].ID, region}]
		join(&all, line.Timeline)
		join(&static, line.Static)
	}
	return all, static
}

// barAndHistory draws the bar of a region and, if there is room, beside it its history, from its lowest to its
// highest use: a change that is small beside the capacity is seen, too.
func (p painter) barAndHistory(g chipGroup, h *histories, region event.Region, columns int) string {
	least, u := g.span(figureOf(region))
	bar := func(columns int) string {
		if region == event.L1 {
			return p.l1Bar(g, columns)
		}
		return p.DrawBar(u.bar(least), columns)
	}
	line, _ := h.of(g, region)
	if columns < 20 || line == nil {
		return bar(columns)
	}
	n := columns * 2 / 5
	spans := line.Columns(h.endNs, n)
	c := chart.Chart{Painter: p.Painter, Columns: spans}
	c.Fit()
	drawn, cursor := []rune(c.One()), ""
	left, right := string(drawn), ""
	if h.cursorNs > 0 {
		at := min(len(drawn)-1, line.Column(max(line.BeginNs, h.cursorNs), h.endNs, n))
		left, cursor, right = string(drawn[:at]), p.Paint(page.Reverse, string(drawn[at:at+1])), string(drawn[at+1:])
	}
	return bar(columns-n-1) + " " + page.Blank(n-len(spans)) + p.Paint(u.level(), left) + cursor + p.Paint(page.Dim, right)
}

// histories returns the timelines of the shown chips. A single process has none.
func (m *model) histories() *histories {
	if m.process() != nil {
		return &histories{}
	}
	h := m.history
	if m.reel != nil {
		h.cursorNs = m.reel.at.TimeNs
	}
	return &h
}

// historyLines are the lines of the page with the history of each region of each chip.
func (m *model) historyLines() (lines []string) {
	h := m.histories()
	for _, g := range chipGroups(m.chips(), !m.unfolded) {
		for _, region := range page.Regions {
			line, static := h.of(g, region)
			if line == nil {
				continue
			}
			if lines != nil {
				lines = append(lines, "")
			}
			lines = append(lines, m.historyOf(g, region, h, line, static)...)
		}
	}
	switch {
	case lines != nil:
		return lines
	case m.process() != nil:
		return []string{"", " There is no history of a single process: p selects another one, or all."}
	}
	return []string{"", m.Cut(" "+m.noChip(), m.width)}
}

// historyOf returns the history of one region, up to its highest use, so that changes are easier
// to see than up to the capacity.
func (m *model) historyOf(g chipGroup, region event.Region, h *histories, line, static *memory.Timeline) []string {
	columns := max(1, m.width-chart.Gutter-1)
	name, f := page.RegionTitle(region)
	c := chart.Chart{Painter: m.Painter, Columns: line.Columns(h.endNs, columns)}
	if region == event.L1 && static != nil {
		c.Base = static.Columns(h.endNs, columns)
	}
	least, most := g.span(figureOf(region))
	for _, s := range c.Columns {
		c.Top = max(c.Top, s.Max)
	}
	c.Style = page.Level(c.Top, most.capacity)
	begin := line.BeginNs
	title := " " + m.Paint(page.Bold, name) + "  " + g.title() + m.Separator() + format(f).span(least, most.used)
	if most.capacity > 0 {
		title += " of " + f(most.capacity)
	}
	mark := columns
	if h.cursorNs > 0 {
		mark = line.Column(max(begin, h.cursorNs), h.endNs, columns)
	}
	height := max(3, min(8, m.height/8))
	return append([]string{title}, c.Lines(height, f(c.Top), h.endNs-min(h.endNs, begin), mark)...)
}
