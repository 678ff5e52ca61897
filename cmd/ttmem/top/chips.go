package top

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// A chipGroup is chips with similar use.
type chipGroup struct {
	ids     []int
	devices []*aggregate.Device
}

// alike is the largest difference in use within a group, as a fraction of the capacity.
const alike = 0.05

// chipGroups returns the chips, one per group, or if folded similar chips together.
func chipGroups(devices []aggregate.Device, folded bool) []chipGroup {
	var groups []chipGroup
	for i := range devices {
		d := &devices[i]
		at := -1
		if folded {
			at = slices.IndexFunc(groups, func(g chipGroup) bool { return looksAlike(g.devices[0], d) })
		}
		if at < 0 {
			at = len(groups)
			groups = append(groups, chipGroup{})
		}
		groups[at].ids = append(groups[at].ids, d.ID)
		groups[at].devices = append(groups[at].devices, d)
	}
	return groups
}

// looksAlike reports whether two chips have the same capacities and similar use.
func looksAlike(a, b *aggregate.Device) bool {
	x, y := &a.Regions, &b.Regions
	if a.Board != b.Board || a.Arch != b.Arch || x.DRAM.CapacityBytes != y.DRAM.CapacityBytes ||
		a.L1PerCore.CapacityBytes != b.L1PerCore.CapacityBytes || x.L1Small.CapacityBytes != y.L1Small.CapacityBytes {
		return false
	}
	near := func(a, b, whole uint64) bool {
		if page.Level(a, whole) != page.Level(b, whole) {
			return false // of another colour, or one has nothing
		}
		return float64(max(a, b)-min(a, b)) <= alike*float64(whole)
	}
	return near(x.DRAM.AllocatedBytes, y.DRAM.AllocatedBytes, x.DRAM.CapacityBytes) &&
		near(a.L1PerCore.CBBytes, b.L1PerCore.CBBytes, a.L1PerCore.CapacityBytes) &&
		near(a.L1PerCore.BufferBytes, b.L1PerCore.BufferBytes, a.L1PerCore.CapacityBytes)
}

// span returns the lowest and the highest value of a figure.
func (g *chipGroup) span(figure func(*aggregate.Device) uint64) (least, most uint64) {
	for i, d := range g.devices {
		n := figure(d)
		if i == 0 {
			least = n
		}
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// Figures of a chip.
func dramUsed(d *aggregate.Device) uint64  { return d.Regions.DRAM.AllocatedBytes }
func l1Tensors(d *aggregate.Device) uint64 { return d.L1PerCore.BufferBytes }
func l1Static(d *aggregate.Device) uint64  { return d.L1PerCore.CBBytes }
func l1Used(d *aggregate.Device) uint64    { return d.L1PerCore.BufferBytes + d.L1PerCore.CBBytes }
func l1Peak(d *aggregate.Device) uint64 {
	return d.L1PerCore.Peak.BufferBytes + d.L1PerCore.Peak.CBBytes
}
func l1Free(d *aggregate.Device) uint64 {
	return d.L1PerCore.CapacityBytes - min(d.L1PerCore.CapacityBytes, l1Used(d))
}
func kernelText(d *aggregate.Device) uint64 { return d.Regions.Kernel.MaxBytesPerCore }

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
	*chipGroup
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
	d := b.devices[0]
	title := "chip " + formatIDs(b.ids)
	about := ""
	if len(b.ids) > 1 {
		title = "chips " + formatIDs(b.ids)
		about = fmt.Sprintf("  %d alike", len(b.ids))
	}
	about += b.DeviceName(d)
	title = " " + title
	heads := b.right("used", b.used()) + b.right("peak", bytesColumns) + b.right("capacity", bytesColumns)
	room := b.width - page.Width(heads)
	title = b.Cut(title, room)
	lines := []string{b.Paint(bold, title) + b.Paint(dim, b.left(about, room-page.Width(title))+heads)}

	least, most := b.span(dramUsed)
	_, peak := b.span(func(d *aggregate.Device) uint64 { return d.Regions.DRAM.PeakBytes })
	capacity := d.Regions.DRAM.CapacityBytes
	st := page.Level(most, capacity)
	lines = append(lines, b.row("DRAM", b.DrawBar(page.Bar{Part: least, More: most, Whole: capacity, Peak: peak, Style: st}, b.bar()),
		page.Bytes, least, most, peak, capacity, st))
	lines = append(lines, b.l1()...)
	for _, r := range []struct {
		name string
		of   func(*aggregate.Device) *aggregate.Region
		// least is the capacity below which an empty region gets no line
		always bool
	}{
		{"L1_SMALL", func(d *aggregate.Device) *aggregate.Region { return &d.Regions.L1Small }, !b.few},
		{"TRACE", func(d *aggregate.Device) *aggregate.Region { return &d.Regions.Trace }, !b.few},
		{"host", func(d *aggregate.Device) *aggregate.Region { return &d.Regions.SystemMemory }, false},
	} {
		least, most := b.span(func(d *aggregate.Device) uint64 { return r.of(d).AllocatedBytes })
		_, peak := b.span(func(d *aggregate.Device) uint64 { return r.of(d).PeakBytes })
		capacity := r.of(d).CapacityBytes
		if peak == 0 && (capacity == 0 || !r.always) {
			continue
		}
		st := page.Level(most, capacity)
		lines = append(lines, b.row(r.name, b.DrawBar(page.Bar{Part: least, More: most, Whole: capacity, Peak: peak, Style: st}, b.bar()),
			page.Bytes, least, most, peak, capacity, st))
	}
	return lines
}

// row is one region, of which least and most are used.
func (b *chipBlock) row(label string, bar string, f format, least, most, peak, capacity uint64, st page.Style) string {
	of := "unknown"
	if capacity > 0 {
		of = f(capacity)
	}
	return " " + b.left(label, labelColumns) + bar +
		b.Paint(st, b.right(page.Percent(most, capacity), percentColumns)) +
		b.Paint(zeroDim(most), b.right(f.span(least, most), b.used())) +
		b.right(f(peak), bytesColumns) + b.Paint(dim, b.right(of, bytesColumns))
}

func zeroDim(n uint64) page.Style {
	if n == 0 {
		return dim
	}
	return bold
}

// l1 returns the lines for the L1 of a core: circular buffers fill it from the base,
// tensors from the top.
func (b *chipBlock) l1() []string {
	capacity := b.devices[0].L1PerCore.CapacityBytes
	leastUsed, mostUsed := b.span(l1Used)
	leastStatic, mostStatic := b.span(l1Static)
	leastTensors, mostTensors := b.span(l1Tensors)
	leastFree, mostFree := b.span(l1Free)
	_, peak := b.span(l1Peak)
	_, text := b.span(kernelText)
	st := page.Level(mostUsed, capacity)
	lines := []string{b.row(l1PerCore, b.gap(mostStatic, mostTensors, capacity, b.bar(), st), page.KiB, leastUsed, mostUsed, peak, capacity, st)}

	parts := []struct {
		mark, name, figure string
		style              page.Style
		there              bool
	}{
		{b.Pick("▓", "="), "CBs, DFBs", format(page.KiB).span(leastStatic, mostStatic), blue, true},
		{b.Pick("█", "#"), "tensors", format(page.KiB).span(leastTensors, mostTensors), cmp.Or(st, green), true},
		{b.Pick("·", "."), "free", format(page.KiB).span(leastFree, mostFree), dim, capacity > 0},
		{"", "kernels", page.KiB(text), dim, true},
	}
	texts, whole := []string{}, -2
	for _, part := range parts {
		if !part.there {
			continue
		}
		text := part.name + " " + part.figure
		if part.mark != "" {
			text = b.Paint(part.style, part.mark) + " " + text
		}
		texts = append(texts, text)
		whole += 2 + page.Width(text)
	}
	// below the bar, if there is room
	indent := 1 + labelColumns
	if indent+whole > b.width {
		indent = 1
	}
	line := page.Blank(indent)
	for _, text := range texts {
		switch {
		case page.Width(line) == indent:
		case page.Width(line)+2+page.Width(text) > b.width:
			lines = append(lines, line)
			line = page.Blank(indent)
		default:
			line += "  "
		}
		line += text
	}
	return append(lines, line)
}

// gap draws the L1 of a core: circular buffers from the left, tensors from the right.
func (p painter) gap(static, tensors, capacity uint64, columns int, st page.Style) string {
	if capacity == 0 {
		return p.DrawBar(page.Bar{}, columns)
	}
	return p.DrawGap(page.NewGap(static, tensors, capacity, columns), blue, st)
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
		label = max(label, min(9, page.Width(formatIDs(groups[i].ids))))
	}
	across := func(cell int) int { return max(1, (columns+cellGap)/(label+cell+cellGap)) }
	wide, down := across(cellColumns), 0
	for ; ; wide++ {
		down = (len(groups) + wide - 1) / wide
		if down <= limit/2 || wide >= across(smallColumns) {
			break
		}
	}
	down = max(1, min(down, limit-1))
	cell := (columns+cellGap)/wide - cellGap
	room := cell - label - 2*(percentColumns+1)
	dram, l1 := (room+1)/2, room/2
	l1Head := l1PerCore
	if l1+percentColumns < len(l1Head) {
		l1Head = "L1"
	}
	top := p.right("chip", label) + " " + p.left("DRAM", dram+percentColumns) + " " + p.left(l1Head, l1+percentColumns)
	wide = min(wide, (len(groups)+down-1)/down)
	lines := []string{}
	line := ""
	for x := range wide {
		if x > 0 {
			line += page.Blank(cellGap)
		}
		line += p.left(top, cell)
	}
	lines = append(lines, p.Paint(dim, line))
	for y := range down {
		line := ""
		for x := range wide {
			at := x*down + y
			if at >= len(groups) {
				break
			}
			if x > 0 {
				line += page.Blank(cellGap)
			}
			line += p.groupCell(&groups[at], label, dram, l1)
		}
		lines = append(lines, line)
	}
	if hidden := len(groups) - wide*down; hidden > 0 {
		lines[len(lines)-1] = p.Cut(lines[len(lines)-1], columns-12) + p.Paint(dim, fmt.Sprintf(" +%d more", hidden))
	}
	return lines
}

// groupCell returns the cell of a group.
func (p painter) groupCell(g *chipGroup, label, dram, l1 int) string {
	d := g.devices[0]
	least, most := g.span(dramUsed)
	_, peak := g.span(func(d *aggregate.Device) uint64 { return d.Regions.DRAM.PeakBytes })
	capacity := d.Regions.DRAM.CapacityBytes
	st := page.Level(most, capacity)
	_, static := g.span(l1Static)
	_, tensors := g.span(l1Tensors)
	_, used := g.span(l1Used)
	core := d.L1PerCore.CapacityBytes
	l1Style := page.Level(used, core)
	return p.Paint(bold, p.right(formatIDs(g.ids), label)) + " " +
		p.DrawBar(page.Bar{Part: least, More: most, Whole: capacity, Peak: peak, Style: st}, dram) +
		p.Paint(st, p.right(page.Percent(most, capacity), percentColumns)) + " " +
		p.gap(static, tensors, core, l1, l1Style) +
		p.Paint(l1Style, p.right(page.Percent(used, core), percentColumns))
}
