package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A chip is a chip of the view. own is the user's own part; nil if that is not shown separately.
type chip struct {
	*memory.Device
	own *memory.Device
}

// A chipGroup is chips with similar use.
type chipGroup []chip

// alike is the largest difference in use within a group, as a fraction of the capacity.
const alike = 0.05

// chipGroups returns the chips, one per group, or if folded similar chips together.
func chipGroups(chips []chip, folded bool) []chipGroup {
	same := func(a, b chip) bool {
		return folded && looksAlike(a.Device, b.Device) && (a.own == nil || looksAlike(a.own, b.own))
	}
	return page.Alike(chipGroup(chips), same)
}

// title is the chips in words: "chips 0-7".
func (g chipGroup) title() string {
	if len(g) > 1 {
		return "chips " + g.ids(shortIDs)
	}
	return "chip " + g.ids(shortIDs)
}

// ids writes the ids of the chips in about so many columns.
func (g chipGroup) ids(columns int) string {
	return page.ShortChips(page.Each(g, func(c chip) int { return c.ID }), columns)
}

// looksAlike reports whether two chips have the same capacities and similar use.
func looksAlike(a, b *memory.Device) bool {
	if a.Board != b.Board || a.Arch != b.Arch || a.Regions.L1Small.CapacityBytes != b.Regions.L1Small.CapacityBytes {
		return false
	}
	for _, of := range []figure{figureOf(event.DRAM), largestProgram, l1Tensors} {
		x, y := of(a), of(b)
		if x.capacity != y.capacity || page.Level(x.used, x.capacity) != page.Level(y.used, y.capacity) {
			return false // the colours differ, or one is empty
		}
		if float64(max(x.used, y.used)-min(x.used, y.used)) > alike*float64(x.capacity) {
			return false
		}
	}
	return true
}

// A use is the use of a region, in bytes. own is the user's own part, if split is true.
type use struct {
	used, peak, capacity uint64
	own                  uint64
	split                bool
}

// bar returns a bar for a use between least and u, or for the user's own part.
func (u use) bar(least uint64) page.Bar {
	if u.split {
		least = u.own
	}
	return page.Bar{Part: least, More: u.used, Whole: u.capacity, Peak: u.peak, Style: u.level()}
}

func (u use) level() page.Style { return page.Level(u.used, u.capacity) }

// A figure is a use of a chip.
type figure func(*memory.Device) use

// figureOf is the use of a region.
func figureOf(region event.Region) figure {
	return func(d *memory.Device) use {
		u := page.UseOf(d, region)
		return use{used: u.Bytes, peak: u.PeakBytes, capacity: u.CapacityBytes}
	}
}

// The figures of the L1 of a core: its use, the tensors, and what the largest program needs.
func l1(d *memory.Device) use { return figureOf(event.L1)(d) }
func l1Tensors(d *memory.Device) use {
	return use{used: d.L1PerCore.BufferBytes, capacity: d.L1PerCore.CapacityBytes}
}
func largestProgram(d *memory.Device) use {
	return use{used: d.L1PerCore.LargestProgramBytes, capacity: d.L1PerCore.CapacityBytes}
}
func l1Free(d *memory.Device) use {
	all := l1(d)
	return use{used: all.capacity - min(all.capacity, all.used)}
}
func kernelText(d *memory.Device) use { return use{used: d.Regions.Kernel.MaxBytesPerCore} }

// span returns a figure of the chips: the highest use, and the least used bytes.
func (g chipGroup) span(of figure) (least uint64, most use) {
	least, most = ^uint64(0), use{}
	for _, c := range g {
		u := of(c.Device)
		least, most.used, most.peak, most.capacity = min(least, u.used), max(most.used, u.used), max(most.peak, u.peak), u.capacity
		if c.own != nil {
			most.split, most.own = true, max(most.own, of(c.own).used)
		}
	}
	return least, most
}

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
	// history is of the chips.
	history *histories
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

func (b *chipBlock) lines() []string {
	title, about := " "+b.title(), b.DeviceName(b.chipGroup[0].Device)
	if n := len(b.chipGroup); n > 1 {
		about = fmt.Sprintf("  %d alike", n) + about
	}
	heads := b.right("used", b.used()) + b.right("peak", bytesColumns) + b.right("capacity", bytesColumns)
	room := b.width - page.Width(heads)
	title = b.Cut(title, room)
	lines := []string{b.Paint(page.Bold, title) + b.Paint(page.Dim, b.left(about, room-page.Width(title))+heads)}
	for _, region := range page.Regions {
		least, most := b.span(figureOf(region))
		// a region that is not reserved has no line, and host memory has none until it is used
		reserved := most.capacity > 0 && region != event.SystemMemory && !b.few
		if region == event.DRAM || region == event.L1 || most.peak > 0 || reserved {
			lines = append(lines, b.row(region, least, most))
		}
		if region == event.L1 {
			lines = append(lines, b.l1Parts()...)
		}
	}
	return lines
}

// row is the line of a region. least and most are the use of the emptiest and the fullest chip.
func (b *chipBlock) row(region event.Region, least uint64, most use) string {
	label, bytes := page.RegionTitle(region)
	if region == event.SystemMemory {
		label = regionNames[region]
	}
	f, of := format(bytes), "unknown"
	if most.capacity > 0 {
		of = f(most.capacity)
	}
	return " " + b.left(label, labelColumns) + b.barAndHistory(b.chipGroup, b.history, region, b.bar()) +
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

// l1Parts returns the lines about the parts of the L1 of a core: tensors fill it from the top, and a
// program that runs needs its base.
func (b *chipBlock) l1Parts() (lines []string) {
	var parts []string
	part := func(mark, name string, st page.Style, of figure) {
		least, most := b.span(of)
		if mark != "" {
			mark = b.Paint(st, mark) + " "
		}
		parts = append(parts, mark+name+" "+format(page.KiB).span(least, most.used))
	}
	part(b.Pick("▓", "="), "largest program", page.Blue, largestProgram)
	_, whole := b.span(l1)
	part(b.Pick("█", "#"), "tensors", cmp.Or(whole.level(), page.Green), l1Tensors)
	if whole.capacity > 0 {
		part(b.Pick("·", "."), "free", page.Dim, l1Free)
	}
	parts = append(parts, b.kernels()...)
	// below the bar, if there is room
	indent := 1 + labelColumns
	if indent+page.Width(strings.Join(parts, "  ")) > b.width {
		indent = 1
	}
	for _, text := range parts {
		if n := len(lines); n > 0 && page.Width(lines[n-1])+2+page.Width(text) <= b.width {
			lines[n-1] += "  " + text
		} else {
			lines = append(lines, page.Blank(indent)+text)
		}
	}
	return lines
}

// kernels returns the sizes of kernels: of operations, and of the runtime, which are on cores of their
// own.
func (b *chipBlock) kernels() (parts []string) {
	_, text := b.span(kernelText)
	has := func(is func(k *memory.KernelsUse) bool) bool {
		return slices.ContainsFunc(b.chipGroup, func(c chip) bool { return is(&c.Regions.Kernel) })
	}
	switch {
	case text.used > 0:
		parts = append(parts, "kernels "+page.KiB(text.used))
	case has(func(k *memory.KernelsUse) bool { return k.Programs > 0 }):
		parts = append(parts, "kernels not known")
	case has(func(k *memory.KernelsUse) bool { return k.NotReported }):
		parts = append(parts, "no kernels reported yet")
	default:
		parts = append(parts, "kernels 0 B")
	}
	for kind := event.QueueKernels; kind < event.NumKernelKinds; kind++ {
		var most memory.RuntimeKernels
		for _, c := range b.chipGroup {
			of := c.Regions.Kernel.Of(kind)
			most.Programs, most.MaxBytesPerCore = max(most.Programs, of.Programs), max(most.MaxBytesPerCore, of.MaxBytesPerCore)
		}
		if most.Programs > 0 {
			parts = append(parts, page.KernelKind(kind)+" "+page.TextBytes(most.MaxBytesPerCore))
		}
	}
	return parts
}

// l1Bar draws the L1 of a core: tensors from the right, and what the largest program needs from the left.
func (p painter) l1Bar(g chipGroup, columns int) string {
	_, all := g.span(l1)
	if all.capacity == 0 {
		return p.DrawBar(page.Bar{}, columns)
	}
	_, statics := g.span(largestProgram)
	_, tensors := g.span(l1Tensors)
	gap := page.NewGap(statics.used, tensors.used, all.capacity, columns)
	own := gap
	if all.split {
		own.Base, own.Top = share(gap.Base, statics), share(gap.Top, tensors)
	}
	others := func(n int) string { return p.Paint(all.level(), strings.Repeat(p.Pick("▒", "+"), n)) }
	return p.Base(own, page.Blue) + others(gap.Base-own.Base) + p.Trough(gap.Free) + others(gap.Top-own.Top) + p.Top(own, all.level())
}

// share is the user's own part of n columns of a use: at least one if it is not 0.
func share(n int, u use) int {
	if u.own == 0 || u.used == 0 {
		return 0
	}
	return min(n, max(1, int(float64(n)*float64(u.own)/float64(u.used)+0.5)))
}

// The columns of a cell of the grid without its label, on wide and on narrow terminals, and
// between two cells.
const (
	cellColumns  = 38
	smallColumns = 21
	cellGap      = 2
)

// cellIDs is how many columns the ids of chips take in a cell, and shortIDs elsewhere.
const cellIDs, shortIDs = 9, 20

// grid draws each group as a cell of one line, for many chips: DRAM, then L1. It has at most
// limit lines.
func (p painter) grid(groups []chipGroup, h *histories, columns, limit int) []string {
	label := 4
	for i := range groups {
		label = max(label, page.Width(groups[i].ids(cellIDs)))
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
	l1Head := page.L1PerCore
	if l1+percentColumns < len(l1Head) {
		l1Head = "L1"
	}
	head := p.left(p.right("chip", label)+" "+p.left("DRAM", dram+percentColumns)+" "+p.left(l1Head, l1+percentColumns), cell)
	lines := []string{p.Paint(page.Dim, strings.Join(slices.Repeat([]string{head}, wide), page.Blank(cellGap)))}
	for y := range height {
		var row []string
		for at := y; at < min(len(groups), wide*height); at += height {
			row = append(row, p.groupCell(groups[at], h, label, dram, l1))
		}
		lines = append(lines, strings.Join(row, page.Blank(cellGap)))
	}
	if hidden := len(groups) - wide*height; hidden > 0 {
		lines[height] = p.Cut(lines[height], columns-12) + p.Paint(page.Dim, fmt.Sprintf(" +%d more", hidden))
	}
	return lines
}

// groupCell returns the cell of a group.
func (p painter) groupCell(g chipGroup, h *histories, label, dramColumns, l1Columns int) string {
	half := func(region event.Region, columns int) string {
		_, u := g.span(figureOf(region))
		return p.barAndHistory(g, h, region, columns) + p.Paint(u.level(), p.right(page.Percent(u.used, u.capacity), percentColumns))
	}
	return p.Paint(page.Bold, p.right(g.ids(cellIDs), label)) + " " + half(event.DRAM, dramColumns) + " " + half(event.L1, l1Columns)
}
