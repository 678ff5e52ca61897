package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A chipGroup is chips with similar use.
type chipGroup []*memory.Device

// alike is the largest difference in use within a group, as a fraction of the capacity.
const alike = 0.05

// chipGroups returns the chips, one per group, or if folded similar chips together.
func chipGroups(devices []memory.Device, folded bool) (groups []chipGroup) {
	var all []*memory.Device
	for i := range devices {
		all = append(all, &devices[i])
	}
	for _, group := range page.Alike(all, func(a, b *memory.Device) bool { return folded && looksAlike(a, b) }) {
		groups = append(groups, group)
	}
	return groups
}

// ids writes the ids of the chips.
func (g chipGroup) ids() string {
	var ids []int
	for _, d := range g {
		ids = append(ids, d.ID)
	}
	return formatIDs(ids)
}

// looksAlike reports whether two chips have the same capacities and similar use.
func looksAlike(a, b *memory.Device) bool {
	if a.Board != b.Board || a.Arch != b.Arch || a.Regions.L1Small.CapacityBytes != b.Regions.L1Small.CapacityBytes {
		return false
	}
	for _, of := range []figure{banked(event.DRAM), l1Statics, l1Tensors} {
		x, y := of(a), of(b)
		if x.capacity != y.capacity || page.Level(x.used, x.capacity) != page.Level(y.used, y.capacity) {
			return false // of another colour, or one has nothing
		}
		if float64(max(x.used, y.used)-min(x.used, y.used)) > alike*float64(x.capacity) {
			return false
		}
	}
	return true
}

// A use is how full something is, in bytes.
type use struct{ used, peak, capacity uint64 }

// bar is a bar of a use that is between least and u.
func (u use) bar(least uint64) page.Bar {
	return page.Bar{Part: least, More: u.used, Whole: u.capacity, Peak: u.peak, Style: u.level()}
}

func (u use) level() page.Style { return page.Level(u.used, u.capacity) }

// A figure is a use of a chip.
type figure func(*memory.Device) use

func banked(region event.Region) figure {
	return func(d *memory.Device) use {
		r := d.Regions.Banked(region)
		return use{r.AllocatedBytes, r.PeakBytes, r.CapacityBytes}
	}
}

// The figures of the L1 of a core: the whole of it, and its parts.
func l1(d *memory.Device) use {
	l := &d.L1PerCore
	return use{l.BufferBytes + l.CBBytes, l.Peak.BufferBytes + l.Peak.CBBytes, l.CapacityBytes}
}
func l1Tensors(d *memory.Device) use {
	return use{used: d.L1PerCore.BufferBytes, capacity: d.L1PerCore.CapacityBytes}
}
func l1Statics(d *memory.Device) use {
	return use{used: d.L1PerCore.CBBytes, capacity: d.L1PerCore.CapacityBytes}
}
func l1Free(d *memory.Device) use {
	all := l1(d)
	return use{used: all.capacity - min(all.capacity, all.used)}
}
func kernelText(d *memory.Device) use { return use{used: d.Regions.Kernel.MaxBytesPerCore} }

// span returns a figure of the chips: the highest of them, and the least that is used.
func (g chipGroup) span(of figure) (least uint64, most use) {
	most = of(g[0])
	least = most.used
	for _, d := range g[1:] {
		u := of(d)
		least, most.used, most.peak = min(least, u.used), max(most.used, u.used), max(most.peak, u.peak)
	}
	return least, most
}

// l1PerCore is the label of the L1 of each core.
const l1PerCore = "L1 per core"

// The columns of a chip's rows. The bar takes the rest.
const (
	labelColumns   = 12
	percentColumns = 5
	bytesColumns   = 11
	rangeColumns   = 17
)

// A chipBlock draws one group of chips.
type chipBlock struct {
	painter
	chipGroup
	width int
	// few leaves out unused regions.
	few bool
	// ranges is true if figures may be ranges in this block or one beside it.
	ranges bool
}

// used returns the number of columns of a figure that may be a range.
func (b *chipBlock) used() int {
	if b.ranges {
		return rangeColumns
	}
	return bytesColumns
}

func (b *chipBlock) bar() int {
	return max(4, b.width-1-labelColumns-percentColumns-b.used()-2*bytesColumns)
}

// lines returns the lines of the block.
func (b *chipBlock) lines() []string {
	title, about := " chip "+b.ids(), b.DeviceName(b.chipGroup[0])
	if n := len(b.chipGroup); n > 1 {
		title, about = " chips "+b.ids(), fmt.Sprintf("  %d alike", n)+about
	}
	heads := b.right("used", b.used()) + b.right("peak", bytesColumns) + b.right("capacity", bytesColumns)
	room := b.width - page.Width(heads)
	title = b.Cut(title, room)
	lines := []string{b.Paint(page.Bold, title) + b.Paint(page.Dim, b.left(about, room-page.Width(title))+heads)}
	for _, region := range []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace, event.SystemMemory} {
		least, most := b.span(banked(region))
		// a region that is not reserved has no line, and host memory has none until it is used
		reserved := most.capacity > 0 && region != event.SystemMemory && !b.few
		switch {
		case region == event.L1:
			lines = append(lines, b.l1()...)
		case region == event.DRAM || most.peak > 0 || reserved:
			name := region.String()
			if region == event.SystemMemory {
				name = regionNames[region]
			}
			lines = append(lines, b.row(name, b.DrawBar(most.bar(least), b.bar()), page.Bytes, least, most))
		}
	}
	return lines
}

// row is one region, of which least and most are used.
func (b *chipBlock) row(label string, bar string, f format, least uint64, most use) string {
	of := "unknown"
	if most.capacity > 0 {
		of = f(most.capacity)
	}
	return " " + b.left(label, labelColumns) + bar +
		b.Paint(most.level(), b.right(page.Percent(most.used, most.capacity), percentColumns)) +
		b.Paint(zeroDim(most.used), b.right(f.span(least, most.used), b.used())) +
		b.right(f(most.peak), bytesColumns) + b.Paint(page.Dim, b.right(of, bytesColumns))
}

func zeroDim(n uint64) page.Style {
	if n == 0 {
		return page.Dim
	}
	return page.Bold
}

// l1 returns the lines for the L1 of a core: circular buffers fill it from the base,
// tensors from the top.
func (b *chipBlock) l1() []string {
	least, most := b.span(l1)
	lines := []string{b.row(l1PerCore, b.l1Bar(b.chipGroup, b.bar()), page.KiB, least, most)}
	var parts []string
	part := func(mark, name string, st page.Style, of figure) {
		least, most := b.span(of)
		if mark != "" {
			mark = b.Paint(st, mark) + " "
		}
		parts = append(parts, mark+name+" "+format(page.KiB).span(least, most.used))
	}
	part(b.Pick("▓", "="), "CBs, DFBs", page.Blue, l1Statics)
	part(b.Pick("█", "#"), "tensors", cmp.Or(most.level(), page.Green), l1Tensors)
	if most.capacity > 0 {
		part(b.Pick("·", "."), "free", page.Dim, l1Free)
	}
	_, text := b.span(kernelText)
	parts = append(parts, "kernels "+page.KiB(text.used))
	// below the bar, if there is room
	indent := 1 + labelColumns
	if indent+page.Width(strings.Join(parts, "  ")) > b.width {
		indent = 1
	}
	line := page.Blank(indent) + parts[0]
	for _, text := range parts[1:] {
		if page.Width(line)+2+page.Width(text) > b.width {
			lines = append(lines, line)
			line = page.Blank(indent) + text
		} else {
			line += "  " + text
		}
	}
	return append(lines, line)
}

// l1Bar draws the L1 of a core: circular buffers from the left, tensors from the right.
func (p painter) l1Bar(g chipGroup, columns int) string {
	_, all := g.span(l1)
	if all.capacity == 0 {
		return p.DrawBar(page.Bar{}, columns)
	}
	_, statics := g.span(l1Statics)
	_, tensors := g.span(l1Tensors)
	return p.DrawGap(page.NewGap(statics.used, tensors.used, all.capacity, columns), page.Blue, all.level())
}

// The columns of a cell of the grid without its label, on wide and on narrow terminals, and
// between two cells.
const (
	cellColumns  = 38
	smallColumns = 21
	cellGap      = 2
)

// grid draws each group as a cell of one line, for many chips: DRAM, then L1. It has at most
// limit lines.
func (p painter) grid(groups []chipGroup, columns, limit int) []string {
	label := 4
	for i := range groups {
		label = max(label, min(9, page.Width(groups[i].ids())))
	}
	across := func(cell int) int { return max(1, (columns+cellGap)/(label+cell+cellGap)) }
	wide := across(cellColumns)
	down := func() int { return (len(groups) + wide - 1) / wide }
	for down() > limit/2 && wide < across(smallColumns) {
		wide++
	}
	cell := (columns+cellGap)/wide - cellGap
	height := max(1, min(down(), limit-1))
	wide = min(wide, (len(groups)+height-1)/height)
	room := cell - label - 2*(percentColumns+1)
	dram, l1 := (room+1)/2, room/2
	l1Head := l1PerCore
	if l1+percentColumns < len(l1Head) {
		l1Head = "L1"
	}
	head := p.left(p.right("chip", label)+" "+p.left("DRAM", dram+percentColumns)+" "+p.left(l1Head, l1+percentColumns), cell)
	lines := []string{p.Paint(page.Dim, strings.Join(slices.Repeat([]string{head}, wide), page.Blank(cellGap)))}
	for y := range height {
		var row []string
		for at := y; at < min(len(groups), wide*height); at += height {
			row = append(row, p.groupCell(groups[at], label, dram, l1))
		}
		lines = append(lines, strings.Join(row, page.Blank(cellGap)))
	}
	if hidden := len(groups) - wide*height; hidden > 0 {
		lines[height] = p.Cut(lines[height], columns-12) + p.Paint(page.Dim, fmt.Sprintf(" +%d more", hidden))
	}
	return lines
}

// groupCell returns the cell of a group.
func (p painter) groupCell(g chipGroup, label, dramColumns, l1Columns int) string {
	least, dram := g.span(banked(event.DRAM))
	_, core := g.span(l1)
	percent := func(u use) string {
		return p.Paint(u.level(), p.right(page.Percent(u.used, u.capacity), percentColumns))
	}
	return p.Paint(page.Bold, p.right(g.ids(), label)) + " " +
		p.DrawBar(dram.bar(least), dramColumns) + percent(dram) + " " + p.l1Bar(g, l1Columns) + percent(core)
}
