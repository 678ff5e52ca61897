package main

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

const (
	// chartHeight is the lines of a timeline, and chartGutter the columns before it.
	chartHeight = 5
	chartGutter = 13
	// defaultWidth is that of what is no terminal.
	defaultWidth = 100
	// shownUnlike is how many peaks of one region, on chips that are not alike, are
	// shown in full, and shownBriefly how many more have a line.
	shownUnlike, shownBriefly = 2, 8
	// leastTitle is how many columns there are at least for what a peak was made of
	// beside its bytes: where there are fewer it is below them, behind narrowIndent.
	leastTitle, narrowIndent = 30, 4
	// shownOwners is how many processes have a line.
	shownOwners = 8
)

// writeText writes the peaks by region. Chips that are alike are one; of many that are
// not, those that were fullest are shown in full, and the others in a line each.
func (p *peakPage) writeText(out *bufio.Writer, layout listLayout, n int) {
	if layout.width == 0 {
		layout.width = defaultWidth
	}
	if len(p.regions) == 0 {
		for _, line := range fit(p.nothing(), layout.width) {
			fmt.Fprintln(out, line)
		}
		p.writeAbout(out, layout)
		return
	}
	over := p.endNs - p.beginNs
	for _, line := range fit(fmt.Sprintf("%s, over %s", plain(p.of), formatMoment(over)), layout.width) {
		fmt.Fprintln(out, layout.paint(dim, line))
	}
	p.writeAbout(out, layout)
	for _, region := range peakRegions {
		var peaks []*chipsPeak
		for _, one := range p.regions {
			if one.Region == region {
				peaks = append(peaks, one)
			}
		}
		slices.SortStableFunc(peaks, func(a, b *chipsPeak) int { return cmp.Compare(b.Bytes, a.Bytes) })
		full := len(peaks)
		if full > shownUnlike+1 && !p.chosen {
			full = shownUnlike
		}
		for _, one := range peaks[:full] {
			fmt.Fprintln(out)
			p.writePeak(out, layout, one, n)
		}
		p.writeBriefly(out, layout, peaks[full:])
	}
	p.writeProcesses(out, layout)
}

// writeAbout writes what is to be known of all that is shown.
func (p *peakPage) writeAbout(out *bufio.Writer, layout listLayout) {
	for _, text := range p.about {
		for _, line := range fit(text, layout.width) {
			fmt.Fprintln(out, layout.paint(dim, line))
		}
	}
}

// nothing says that there is nothing to show.
func (p *peakPage) nothing() string {
	for _, region := range p.peaks {
		if region.Bytes > 0 || region.Earlier != nil {
			return fmt.Sprintf("Nothing of that was allocated %s: other regions or chips have peaks.", plain(placeIn(p.of)))
		}
	}
	return fmt.Sprintf("Nothing was allocated %s.", plain(placeIn(p.of)))
}

// regionTitle is what a region is called.
func regionTitle(region event.Region) string {
	if region == event.L1 {
		return "L1 per core"
	}
	return region.String()
}

// chips names the chips of a peak.
func (c *chipsPeak) chips() string {
	if len(c.ids) > 1 {
		return formatIDs(c.ids) + " (each)"
	}
	return formatIDs(c.ids)
}

// bytes writes bytes of the region.
func (c *chipsPeak) format(n uint64) string {
	if c.Region == event.L1 {
		return formatKiB(n)
	}
	return formatBytes(n)
}

// share is which part of the capacity that is, with "of".
func (c *chipsPeak) share(bytes, capacity uint64) string {
	if capacity == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of %s", formatPercent(bytes, capacity), c.format(capacity))
}

// writePeak writes a peak: its moment, its timeline and what it was made of.
func (p *peakPage) writePeak(out *bufio.Writer, layout listLayout, c *chipsPeak, n int) {
	writeHead(out, layout, regionTitle(c.Region), c.chips())
	if e := c.Earlier; e != nil {
		writeLine(out, layout, yellow, fmt.Sprintf("Its highest peak was %s%s, %s before what is shown here begins: what it was made of is not known. After that:",
			c.format(e.Bytes), c.share(e.Bytes, e.CapacityBytes), formatMoment(p.beginNs-min(p.beginNs, e.TimeNs))))
	}
	at := ""
	switch {
	case c.Bytes == 0:
		fmt.Fprintln(out, " nothing")
		return
	case c.TimeNs <= p.beginNs && p.restored:
		at = "at the beginning"
	default:
		at = "at " + formatMoment(c.TimeNs-min(c.TimeNs, p.beginNs))
	}
	writeLine(out, layout, bold, fmt.Sprintf("peak %s%s, %s", c.format(c.Bytes), c.share(c.Bytes, c.CapacityBytes), at))
	if c.StaticBytes > 0 {
		writeLine(out, layout, noStyle, fmt.Sprintf("%s %s of buffers, %s %s of circular and dataflow buffers", layout.pick("█", "#"),
			c.format(c.Bytes-c.StaticBytes), layout.pick("▓", "="), c.format(c.StaticBytes)))
	}
	p.writeChart(out, layout, c)
	if c.Region != event.L1 {
		p.writeRows(out, layout, c, "buffers", c.rows, c.Bytes, n)
		return
	}
	if buffers := c.Bytes - c.StaticBytes; buffers > 0 {
		p.writeRows(out, layout, c, "buffers", c.rows, c.Bytes, n)
	}
	if c.StaticBytes > 0 {
		p.writeRows(out, layout, c, "CBs, DFBs", c.programs, c.Bytes, n)
		if len(c.programs) > 1 {
			writeLine(out, layout, dim, "Programs use the same space one after the other: these do not add up.")
		}
	}
}

// writeHead writes a title and what comes after it, below where there is no room.
func writeHead(out *bufio.Writer, layout listLayout, title, rest string) {
	if width(title)+2+width(rest) <= layout.width {
		fmt.Fprintln(out, layout.paint(bold, title)+layout.paint(dim, "  "+rest))
		return
	}
	fmt.Fprintln(out, layout.paint(bold, title))
	writeLine(out, layout, dim, rest)
}

// writeLine writes a line, as several where it is too long for one.
func writeLine(out *bufio.Writer, layout listLayout, st style, text string) {
	for _, line := range fit(text, layout.width-1) {
		fmt.Fprintln(out, " "+layout.paint(st, line))
	}
}

// fit breaks a text into lines of at most limit columns: between words, and within those
// that are longer.
func fit(text string, limit int) (lines []string) {
	for _, line := range wrap(text, limit) {
		for width(line) > limit {
			n, columns := 0, 0
			for i, r := range line {
				if columns += width(string(r)); columns > limit {
					n = i
					break
				}
			}
			lines, line = append(lines, line[:n]), line[n:]
		}
		lines = append(lines, line)
	}
	return lines
}

// writeChart writes the timeline.
func (p *peakPage) writeChart(out *bufio.Writer, layout listLayout, c *chipsPeak) {
	columns := layout.width - chartGutter - 1
	chart := textChart{painter: layout.painter, columns: c.Timeline.Columns(p.endNs, columns), top: c.Bytes, style: level(c.Bytes, c.CapacityBytes)}
	if c.StaticBytes > 0 {
		chart.base = c.StaticTimeline.Columns(p.endNs, columns)
	}
	for i, row := range chart.rows(chartHeight) {
		label, edge := "", layout.pick("│", "|")
		if i == 0 {
			label, edge = c.format(c.Bytes), layout.pick("┤", "+")
		}
		fmt.Fprintln(out, right(label, chartGutter-2)+" "+layout.paint(dim, edge)+row)
	}
	mark := c.Timeline.Column(c.TimeNs, p.endNs, columns)
	line, labels := chart.axisLines(p.endNs-p.beginNs, mark)
	fmt.Fprintln(out, right("0 B", chartGutter-2)+" "+layout.paint(dim, layout.pick("┼", "+")+line))
	fmt.Fprintln(out, left("", chartGutter)+layout.paint(dim, labels))
}

// writeRows writes what a peak was made of.
func (p *peakPage) writeRows(out *bufio.Writer, layout listLayout, c *chipsPeak, noun string, rows []peakRow, whole uint64, n int) {
	shown := rows
	if n > 0 && len(rows) > n {
		shown = rows[:n]
	}
	head := right("bytes", sizeColumns) + right("%", 5) + right(noun, 11)
	fmt.Fprintln(out, layout.paint(dim, head+"  "+p.by))
	for i := range shown {
		row := &shown[i]
		line := right(c.format(row.bytes), sizeColumns) + right(formatPercent(row.bytes, whole), 6) + right(fmt.Sprint(row.count), 10) + "  "
		title := strings.ReplaceAll(row.key, " · ", layout.separator())
		if p.by == "stack" && len(p.list.snap.Processes) > 1 {
			title = fmt.Sprintf("PID %d%s%s", row.pid, layout.separator(), title)
		}
		if len(row.programs) > 1 {
			title += fmt.Sprintf(" (%d programs)", len(row.programs))
		}
		indent := width(line)
		if layout.width-indent < leastTitle {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			indent, line = narrowIndent, left("", narrowIndent)
		}
		for _, part := range fit(title, layout.width-indent) {
			fmt.Fprintln(out, line+layout.paint(green, part))
			line = left("", indent)
		}
		for _, part := range joinCallers(row.callers, layout, layout.width-indent-2) {
			fmt.Fprintln(out, left("", indent+2)+layout.paint(dim, part))
		}
	}
	if more := rows[len(shown):]; len(more) > 0 {
		var bytes, count uint64
		for i := range more {
			bytes, count = bytes+more[i].bytes, count+more[i].count
		}
		line := right(c.format(bytes), sizeColumns) + right(formatPercent(bytes, whole), 6)
		if more[0].programs != nil {
			line = right("", sizeColumns+6) // they do not add up
		}
		line += right(fmt.Sprint(count), 10) + "  "
		text := fmt.Sprintf("and %s more: -n 0 lists all", formatGrouped(len(more)))
		if layout.width-width(line) < leastTitle {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = left("", narrowIndent)
		}
		fmt.Fprintln(out, line+text)
	}
}

// joinCallers breaks calls into lines of at most limit columns, between them.
func joinCallers(calls []string, layout listLayout, limit int) (lines []string) {
	for _, call := range calls {
		call = layout.pick("← ", "< ") + call
		if n := len(lines); n > 0 && width(lines[n-1])+1+width(call) <= limit {
			lines[n-1] += " " + call
		} else {
			lines = append(lines, fit(call, limit)...)
		}
	}
	return lines
}

// writeBriefly writes a line for each of the peaks, which are of one region.
func (p *peakPage) writeBriefly(out *bufio.Writer, layout listLayout, peaks []*chipsPeak) {
	if len(peaks) == 0 {
		return
	}
	fmt.Fprintln(out)
	writeHead(out, layout, regionTitle(peaks[0].Region), "other chips (--chip N: of what)")
	for _, c := range peaks[:min(len(peaks), shownBriefly)] {
		line := right(c.format(c.Bytes), sizeColumns) + right(formatPercent(c.Bytes, c.CapacityBytes), 6) +
			right(formatMoment(c.TimeNs-min(c.TimeNs, p.beginNs)), 12)
		if width(line)+2+width(c.chips()) > layout.width {
			fmt.Fprintln(out, line)
			for _, part := range fit(c.chips(), layout.width-narrowIndent) {
				fmt.Fprintln(out, left("", narrowIndent)+part)
			}
			continue
		}
		line += "  " + left(c.chips(), 16) + "  "
		columns := layout.width - width(line) - 1
		if columns < 10 {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			continue
		}
		chart := textChart{painter: layout.painter, columns: c.Timeline.Columns(p.endNs, columns), top: c.Bytes, style: level(c.Bytes, c.CapacityBytes)}
		fmt.Fprintln(out, line+chart.rows(1)[0])
	}
	if more := peaks[min(len(peaks), shownBriefly):]; len(more) > 0 {
		chips := 0
		for _, c := range more {
			chips += len(c.ids)
		}
		writeLine(out, layout, noStyle, fmt.Sprintf("%s more, from %s to %s", "and "+formatCount(uint64(chips), "chip"),
			more[len(more)-1].format(more[len(more)-1].Bytes), more[0].format(more[0].Bytes)))
	}
}

// writeProcesses writes what each process had most of, on the chip where it was most.
func (p *peakPage) writeProcesses(out *bufio.Writer, layout listLayout) {
	type owner struct {
		text  string
		bytes uint64
	}
	var owners []owner
	for i := range p.list.snap.Processes {
		one := &p.list.snap.Processes[i]
		o := owner{}
		for _, region := range peakRegions {
			if peak := processPeak(one, region); peak.Bytes > 0 {
				shown := chipsPeak{RegionPeak: aggregate.RegionPeak{Region: region}}
				o.text += fmt.Sprintf("%s%s %s %s", layout.separator(), regionTitle(region), shown.format(peak.Bytes), p.moment(peak.TimeNs))
				o.bytes += peak.Bytes
			}
		}
		if o.bytes > 0 {
			o.text = fmt.Sprintf("PID %d %s%s", one.PID, processName(one), o.text)
			owners = append(owners, o)
		}
	}
	if len(owners) < 2 {
		return
	}
	slices.SortStableFunc(owners, func(a, b owner) int { return cmp.Compare(b.bytes, a.bytes) })
	fmt.Fprintln(out)
	writeHead(out, layout, "Processes", "their own peaks (-p PID: of what)")
	for _, o := range owners[:min(len(owners), shownOwners)] {
		indent := " "
		for _, line := range fit(o.text, layout.width-4) {
			fmt.Fprintln(out, indent+line)
			indent = "   "
		}
	}
	if more := len(owners) - shownOwners; more > 0 {
		fmt.Fprintf(out, " and %d more: --json has all\n", more)
	}
}

// moment is a time since the beginning.
func (p *peakPage) moment(ns uint64) string {
	if ns < p.beginNs {
		return formatMoment(p.beginNs-ns) + " before"
	}
	return "at " + formatMoment(ns-p.beginNs)
}

// processPeak is the most that a process had of a region on one chip.
func processPeak(one *aggregate.Process, region event.Region) (peak aggregate.EarlierPeak) {
	for i := range one.Devices {
		d := &one.Devices[i]
		bytes, time := d.Regions.Banked(region).PeakBytes, d.Regions.Banked(region).PeakTimeNs
		if region == event.L1 {
			bytes, time = d.L1PerCore.Peak.BufferBytes+d.L1PerCore.Peak.CBBytes, d.L1PerCore.Peak.TimeNs
		}
		if bytes > peak.Bytes {
			peak = aggregate.EarlierPeak{TimeNs: time, Bytes: bytes}
		}
	}
	return peak
}

// formatMoment writes a time in ns to the millisecond, if it is not long.
func formatMoment(ns uint64) string {
	if ns < 120e9 {
		return fmt.Sprintf("%.3f s", float64(ns)/1e9)
	}
	return formatSeconds(ns)
}
