package peak

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/chart"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

const (
	// chartHeight is the lines of a timeline.
	chartHeight = 5
	// defaultWidth is the width if the output is not a terminal.
	defaultWidth = 100
	// shownUnlike is how many different peaks of one region are shown in full, and shownBriefly
	// how many more have a line.
	shownUnlike, shownBriefly = 2, 8
	// shownOwners is how many processes have a line.
	shownOwners = 8
)

// WriteText writes the peaks by region. Chips with the same peak are one. If many differ, the
// fullest are shown in full, and the others in one line each.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.Width = cmp.Or(layout.Width, defaultWidth)
	if len(p.regions) == 0 {
		layout.Write(out, 0, page.NoStyle, p.nothing())
		p.writeAbout(out, layout)
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, fmt.Sprintf("%s, over %s", page.Clean(p.Of), page.Moment(p.endNs-p.beginNs)))
	p.writeAbout(out, layout)
	for _, region := range page.Regions {
		var peaks []*chipsPeak
		for _, one := range p.regions {
			if one.Region == region {
				peaks = append(peaks, one)
			}
		}
		slices.SortStableFunc(peaks, func(a, b *chipsPeak) int { return cmp.Compare(b.Bytes, a.Bytes) })
		full := len(peaks)
		if full > shownUnlike+1 && len(p.Filter.Devices) == 0 {
			full = shownUnlike
		}
		for _, one := range peaks[:full] {
			fmt.Fprintln(out)
			p.writePeak(out, layout, one)
		}
		p.writeBriefly(out, layout, peaks[full:])
	}
	p.writeProcesses(out, layout)
	return out.Flush()
}

// writeAbout writes the explanations of the timelines.
func (p *Page) writeAbout(out *bufio.Writer, layout page.Layout) {
	for _, text := range p.About {
		layout.Write(out, 0, page.Dim, text)
	}
}

// nothing returns the text of an empty page.
func (p *Page) nothing() string {
	for _, region := range p.peaks {
		if region.Bytes > 0 || region.Earlier != nil {
			return fmt.Sprintf("No matching allocations %s; other regions or chips have peaks.", page.Clean(p.Place))
		}
	}
	return fmt.Sprintf("Nothing was allocated %s.", page.Clean(p.Place))
}

func (c *chipsPeak) title() string {
	title, _ := page.RegionTitle(c.Region)
	return title
}

func (c *chipsPeak) format(n uint64) string {
	_, format := page.RegionTitle(c.Region)
	return format(n)
}

// share returns the share of the capacity, with "of".
func (c *chipsPeak) share(bytes, capacity uint64) string {
	if capacity == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of %s", page.Percent(bytes, capacity), c.format(capacity))
}

// writePeak writes a peak: its moment, its contents, and its timeline.
func (p *Page) writePeak(out *bufio.Writer, layout page.Layout, c *chipsPeak) {
	layout.WriteTitle(out, "", c.title(), "  "+page.EachChip(c.ids))
	if e := c.Earlier; e != nil {
		layout.Write(out, 1, page.Yellow, fmt.Sprintf("Higher peak of %s%s, %s before this recording started; no breakdown. Since then:",
			c.format(e.Bytes), c.share(e.Bytes, e.CapacityBytes), page.Moment(p.beginNs-min(p.beginNs, e.TimeNs))))
	}
	if c.Bytes == 0 {
		fmt.Fprintln(out, " nothing")
		return
	}
	at := p.moment(c.TimeNs) + layout.Pick(" (▲)", " (^)")
	switch {
	case c.TimeNs < p.beginNs && !p.UTC:
		at = page.Moment(p.beginNs-c.TimeNs) + " before this recording started"
	case c.TimeNs == p.beginNs && p.restored:
		at = "at the beginning"
	}
	most := "peak "
	if c.AtLeast {
		most = "peak at least "
	}
	layout.Write(out, 1, page.Bold, fmt.Sprintf("%s%s%s, %s", most, c.format(c.Bytes), c.share(c.Bytes, c.CapacityBytes), at))
	if c.StaticBytes > 0 {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("%s %s of buffers, %s %s of the program that ran", layout.Pick("█", "#"),
			c.format(c.Bytes-c.StaticBytes), layout.Pick("▓", "="), c.format(c.StaticBytes)))
	}
	if c.Region != event.L1 || c.Bytes > c.StaticBytes {
		p.writeRows(out, layout, c, "buffers", p.rows(c.buffers, c.OthersBytes-c.OthersStaticBytes, p.Lines))
	}
	if c.StaticBytes > 0 {
		p.writeRows(out, layout, c, "CBs, DFBs", p.rows(c.statics, c.OthersStaticBytes, p.Lines))
	}
	p.writeChart(out, layout, c)
}

func (p *Page) chart(layout page.Layout, c *chipsPeak, columns int) *chart.Chart {
	return &chart.Chart{
		Painter: layout.Painter, Columns: c.Timeline.Columns(p.endNs, columns), Top: c.Bytes, Style: page.Level(c.Bytes, c.CapacityBytes),
	}
}

// writeChart writes the timeline.
func (p *Page) writeChart(out *bufio.Writer, layout page.Layout, c *chipsPeak) {
	columns := layout.Width - chart.Gutter - 1
	drawn := p.chart(layout, c, columns)
	if c.StaticBytes > 0 {
		drawn.Base = c.StaticTimeline.Columns(p.endNs, columns)
	}
	mark := c.Timeline.Column(c.TimeNs, p.endNs, columns)
	for _, line := range drawn.Lines(chartHeight, c.format(c.Bytes), p.endNs-p.beginNs, mark) {
		fmt.Fprintln(out, line)
	}
}

func (p *Page) writeRows(out *bufio.Writer, layout page.Layout, c *chipsPeak, noun string, rows []*alloc.Row) {
	whole := c.Bytes // of which rows are parts
	for _, row := range rows {
		whole = max(whole, row.Amounts[0].Bytes) // several allocators may have assigned the same memory
	}
	title := p.table().Title
	(&table.List{
		Columns: p.columns(noun, whole, c.format), Rows: rows, Limit: p.Limit, Head: p.By, Below: p.below(out, layout, c),
		Title: func(r *alloc.Row) string {
			if p.By == "stack" && r.PID > 0 && len(p.Snap.Processes) > 1 {
				return p.names.Users().PID(r.PID) + " · " + title(r)
			}
			return title(r)
		},
		Style: func(*alloc.Row) page.Style { return page.Green },
	}).Write(out, layout)
}

// writeBriefly writes a line for each peak of a region.
func (p *Page) writeBriefly(out *bufio.Writer, layout page.Layout, peaks []*chipsPeak) {
	if len(peaks) == 0 {
		return
	}
	fmt.Fprintln(out)
	layout.WriteTitle(out, "", peaks[0].title(), "  "+"other chips (--chip N for a breakdown)")
	for _, c := range peaks[:min(len(peaks), shownBriefly)] {
		line := page.Columns{page.SizeColumns, 6, 12}.Line(c.format(c.Bytes), page.Percent(c.Bytes, c.CapacityBytes),
			page.Moment(c.TimeNs-min(c.TimeNs, p.beginNs)))
		if page.Width(line)+2+page.Width(page.EachChip(c.ids)) > layout.Width {
			fmt.Fprintln(out, line)
			layout.Write(out, page.NameIndent, page.NoStyle, page.EachChip(c.ids))
			continue
		}
		line += "  " + page.Left(page.EachChip(c.ids), 16) + "  "
		columns := layout.Width - page.Width(line) - 1
		if columns < 10 {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			continue
		}
		fmt.Fprintln(out, line+p.chart(layout, c, columns).Rows(1)[0])
	}
	if more := peaks[min(len(peaks), shownBriefly):]; len(more) > 0 {
		chips := 0
		for _, c := range more {
			chips += len(c.ids)
		}
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("%s more, from %s to %s", "and "+page.Count(uint64(chips), "chip"),
			more[len(more)-1].format(more[len(more)-1].Bytes), more[0].format(more[0].Bytes)))
	}
}

// writeProcesses writes each process's highest use, on the chip where it was highest.
func (p *Page) writeProcesses(out *bufio.Writer, layout page.Layout) {
	type owner struct {
		text  string
		bytes uint64
	}
	var owners []owner
	for _, one := range p.processes() {
		o := owner{text: p.names.Users().PID(one.PID) + " " + one.Name}
		for _, peak := range one.Regions {
			title, format := page.RegionTitle(peak.region)
			o.text += fmt.Sprintf("%s%s %s %s", layout.Separator(), title, format(peak.Bytes), p.moment(peak.TimeNs))
			o.bytes += peak.Bytes
		}
		if o.bytes > 0 {
			owners = append(owners, o)
		}
	}
	if len(owners) < 2 {
		return
	}
	slices.SortStableFunc(owners, func(a, b owner) int { return cmp.Compare(b.bytes, a.bytes) })
	fmt.Fprintln(out)
	layout.WriteTitle(out, "", "Processes", "  "+"own peaks (-p PID for a breakdown)")
	for _, o := range owners[:min(len(owners), shownOwners)] {
		indent := " "
		for _, line := range page.Fold(o.text, layout.Width-4) {
			fmt.Fprintln(out, indent+line)
			indent = "   "
		}
	}
	if more := len(owners) - shownOwners; more > 0 {
		fmt.Fprintf(out, " and %d more: --json has all\n", more)
	}
}

// moment is a time since the beginning.
func (p *Page) moment(ns uint64) string {
	if p.UTC {
		return "at " + p.Clock.UTC(ns) + " UTC"
	}
	if ns < p.beginNs {
		return page.Moment(p.beginNs-ns) + " before"
	}
	return "at " + page.Moment(ns-p.beginNs)
}
