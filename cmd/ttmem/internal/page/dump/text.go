package dump

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// sectionTotal is the sum of the selected allocations of a region of a chip.
type sectionTotal struct{ count, bytes uint64 }

// A chip is the selected allocations of a chip, and which of their rows are listed.
type chip struct {
	id     int
	device memory.Device
	rows   []int
	totals [event.NumRegions]sectionTotal
}

func (c *chip) same(o *chip) bool {
	return c.device.Board == o.device.Board && c.device.Arch == o.device.Arch && c.totals == o.totals && slices.Equal(c.rows, o.rows)
}

// WriteText writes the rows by device and region. Chips with the same rows share a
// section.
func (l *List) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, l.Others)
	if l.All == 0 {
		layout.Write(out, 0, page.NoStyle, l.nothing())
		return out.Flush()
	}
	sites := make(map[*alloc.Site]bool)
	var chips page.Groups[int, chip]
	for i, a := range l.rows() {
		sites[a.Site] = true
		on := a.Devices
		if len(on) == 0 {
			on = []int{memory.NoDevice}
		}
		for _, id := range on {
			c, found := chips.Of(id)
			if !found {
				c.id, c.device = id, l.device(id)
			}
			t := &c.totals[a.Region]
			t.count++
			if a.Static == nil || !a.Static.Global {
				t.bytes += a.Bytes()
			}
			if i < len(l.items)-l.cutOff {
				c.rows = append(c.rows, i)
			}
		}
	}
	alloc.Distinguish(maps.Keys(sites))
	slices.SortFunc(chips.List, func(a, b *chip) int { return cmp.Compare(a.id, b.id) })
	for i, same := range page.Alike(chips.List, (*chip).same) {
		if i > 0 {
			fmt.Fprintln(out)
		}
		c, title := same[0], page.EachChip(page.Each(same, func(c *chip) int { return c.id }))
		if c.id == memory.NoDevice {
			title = "unknown chip"
		}
		layout.WriteTitle(out, "", title, layout.DeviceName(&c.device))
		for _, region := range alloc.Regions {
			if c.totals[region].count > 0 {
				l.writeRegion(out, layout, region, c)
			}
		}
	}
	if l.cutOff > 0 {
		fmt.Fprintf(out, "\nand %s more of %s: -n 0 lists all\n", page.Grouped(l.cutOff), page.Grouped(l.All))
	}
	return out.Flush()
}

// nothing returns the text of an empty page.
func (l *List) nothing() string {
	if l.There > 0 {
		text := fmt.Sprintf("No matching allocation %s; %s live.", l.Of, page.Count(uint64(l.There), "buffer"))
		if f := l.Filter.Regions; slices.Contains(f, event.L1) && !slices.Contains(f, event.CB) {
			text += " Circular and dataflow buffers are --region CB."
		}
		return text
	}
	text := fmt.Sprintf("Nothing is allocated %s.", l.Of)
	if len(l.Filter.Regions) > 0 {
		text = fmt.Sprintf("Nothing is allocated in %s %s.", strings.Join(alloc.RegionNames(l.Filter.Regions), ", "), l.Of)
	}
	if file := page.Clean(l.Ended); file != "" {
		text += fmt.Sprintf(" `ttmem dump %s --at peak` lists each region at its peak, `ttmem leaks %s` the memory that was never freed.", file, file)
	}
	return text
}

// device returns a chip; empty if it is not known.
func (l *List) device(id int) (device memory.Device) {
	if i := slices.IndexFunc(l.Snap.Devices, func(d memory.Device) bool { return d.ID == id }); i >= 0 {
		return l.Snap.Devices[i]
	}
	return device
}

// banksColumns is the width of the number of banks.
const banksColumns = 5

// rowColumns are the address, the allocated size, its share of each bank, the age, the runs since the latest use if one is
// known, the process, its user if there are several, and the layout. The name follows, or has its own line.
var rowColumns = page.Columns{14, page.SizeColumns, page.SizeColumns + 3 + banksColumns, 10, idleColumn: 12, 8, userColumn: page.UserColumns, -17}

// The places of columns that may be left out.
const (
	idleColumn = iota + 4
	pidColumn
	userColumn
	layoutColumn
)

func (l *List) writeRegion(out *bufio.Writer, layout page.Layout, region event.Region, c *chip) {
	total := c.totals[region]
	noun, each, parts, of := "buffer", "per bank × banks", " banks", ""
	if region == event.CB {
		noun, each, parts, of = "static buffer", "per core × cores", " cores", ", placed anew by each program that runs"
	}
	if layout.ASCII {
		each = strings.Replace(each, "×", "x", 1)
	}
	twice := ""
	if r := c.device.Regions.Banked(region); r != nil && r.OverlapBytesPerBank > 0 && r.Buffers == total.count {
		once := r.OverlapBytesPerBank * uint64(r.Banks)
		twice = ", of which " + page.Bytes(once) + " are assigned twice"
		total.bytes -= min(total.bytes, once)
	}
	if r := c.device.Regions.Banked(region); r != nil && r.CapacityBytes > 0 {
		of = fmt.Sprintf(" of %s, %s", page.Bytes(r.CapacityBytes), page.Percent(total.bytes, r.CapacityBytes))
	}
	name := region.String()
	if region == event.CB {
		name = "CBs, DFBs"
	}
	layout.WriteTitle(out, " ", name, fmt.Sprintf("  %s, %s%s", page.Count(total.count, noun), page.Bytes(total.bytes), of+twice))
	rows := slices.DeleteFunc(slices.Clone(c.rows), func(i int) bool { return l.items[i].like.Region != region })
	if len(rows) == 0 {
		return
	}
	widest := 0
	for _, row := range rows {
		if layout.Width > 0 {
			widest = max(widest, page.Width(l.rowTitle(l.At(row), layout)))
		}
	}
	columns, users := slices.Clone(rowColumns), l.Users()
	if len(users) == 0 {
		columns[userColumn] = 0
	}
	isOneLine := func() bool { return layout.Width == 0 || columns.Width()+2+widest <= layout.Width }
	tooWide := func() bool { return layout.Width > 0 && columns.Width() > layout.Width }
	idle := columns[idleColumn]
	columns[idleColumn] = 0
	oneLine := isOneLine()
	if slices.ContainsFunc(rows, func(i int) bool { return l.At(i).LastUse.TimeNs > 0 }) {
		if columns[idleColumn] = idle; tooWide() || oneLine && !isOneLine() {
			columns[idleColumn] = 0
		}
	}
	few := tooWide()
	if few {
		columns[pidColumn], columns[userColumn], columns[layoutColumn] = 0, 0, 0
	}
	least := tooWide()
	if least {
		columns[2] = 0
	}
	head := columns.Line("address", "allocated", each, "age", "unused", "PID", "USER", "  layout")
	if oneLine {
		head += "  name"
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, strings.TrimRight(head, " ")))
	for _, row := range rows {
		a := l.At(row)
		share := page.Right(page.Bytes(a.BytesPerBank), page.SizeColumns) + layout.Pick(" × ", " x ") + page.Left(fmt.Sprint(a.Banks), banksColumns)
		kind := strings.ReplaceAll(a.Layout, "_", " ")
		address := fmt.Sprintf("%#x", a.Address)
		if a.Buffer != nil && a.Buffer.Scattered() {
			address = "differs"
		}
		line := columns.Line(address, page.Bytes(a.Bytes()), share, l.age(a), unused(a), fmt.Sprint(a.PID), layout.Cut(users[a.PID], page.UserColumns-1), "  "+kind)
		title := l.rowTitle(a, layout)
		if few {
			title = users.PID(a.PID) + ", " + kind + ", " + title
		}
		if oneLine {
			fmt.Fprintln(out, line+"  "+title)
			continue
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
		if least {
			title = strings.TrimSpace(share) + parts + ", " + title
		}
		layout.Write(out, page.NameIndent, page.Green, title)
	}
}

// rowTitle is the name of a row with its details.
func (l *List) rowTitle(a *alloc.Row, layout page.Layout) string {
	title := l.Line(a, layout.Separator())
	if a.Chips > 1 {
		title += fmt.Sprintf(", shared across %d chips", a.Chips)
	}
	if a.Buffer != nil && a.Buffer.PerCore {
		title += ", on " + alloc.Cores(a.Buffer.Cores())
	}
	if b := a.Buffer; b != nil && b.DataBanks < b.Banks {
		title += fmt.Sprintf(", data %s in %s", page.Bytes(b.DataBytes()), page.Count(uint64(b.DataBanks), "bank"))
	}
	if b := a.Buffer; b != nil && b.PaddingIn(100) > 0 { // at least 1 %
		title += fmt.Sprintf(", padded %s from %s", page.Factor(b.SizeBytes, b.TensorBytes()), page.Bytes(b.TensorBytes()))
	}
	if a.Static != nil && a.Static.Global {
		title += ", in an L1 buffer"
	}
	return title
}

// unused is how many runs of programs followed the latest use of a row; "" if that is not known.
func unused(a *alloc.Row) string {
	if a.LastUse.TimeNs == 0 {
		return ""
	}
	return page.Count(a.Runs, "run")
}

// age is how long a row has been live.
func (l *List) age(a *alloc.Row) string {
	if a.BeforeAttach {
		return "earlier"
	}
	return page.Seconds(a.Age())
}
