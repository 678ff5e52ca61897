package dump

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// sectionTotal is the sum of the selected allocations of a region of a chip.
type sectionTotal struct{ count, bytes uint64 }

// WriteText writes the rows by device and region. Chips with the same rows share a
// section.
func (l *List) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, l.Others)
	if l.All == 0 {
		layout.Write(out, 0, page.NoStyle, l.nothing())
		return out.Flush()
	}
	var sites []*alloc.Site
	listed := make(map[*alloc.Site]bool)
	for i := range l.Rows {
		if s := l.Rows[i].Site; !listed[s] {
			listed[s] = true
			sites = append(sites, s)
		}
	}
	alloc.Distinguish(sites)
	type chip struct {
		rows   []int
		totals [event.NumRegions]sectionTotal
	}
	chips := make(map[int]*chip)
	noChip := []int{-1} // the chip is not known
	for i := range l.Rows {
		a := &l.Rows[i]
		on := a.Devices
		if len(on) == 0 {
			on = noChip
		}
		for _, id := range on {
			c := chips[id]
			if c == nil {
				c = &chip{}
				chips[id] = c
			}
			t := &c.totals[a.Region]
			t.count++
			if a.Static == nil || !a.Static.Global {
				t.bytes += a.Bytes()
			}
			if i < len(l.Rows)-l.cutOff {
				c.rows = append(c.rows, i)
			}
		}
	}
	type section struct {
		name string
		ids  []int
		*chip
	}
	var sections []section
	for _, id := range page.Keys(chips) {
		c, name := chips[id], l.deviceName(id, layout)
		same := slices.IndexFunc(sections, func(s section) bool {
			return s.name == name && s.totals == c.totals && slices.Equal(s.rows, c.rows)
		})
		if same >= 0 {
			sections[same].ids = append(sections[same].ids, id)
		} else {
			sections = append(sections, section{name, []int{id}, c})
		}
	}
	for i, s := range sections {
		if i > 0 {
			fmt.Fprintln(out)
		}
		title := page.Chips(s.ids)
		switch {
		case s.ids[0] < 0:
			title = "unknown chip"
		case len(s.ids) > 1:
			title += " (each)"
		}
		layout.WriteTitle(out, "", title, s.name)
		for _, region := range alloc.Regions {
			if s.totals[region].count > 0 {
				l.writeRegion(out, layout, region, s.ids[0], s.totals[region], s.rows)
			}
		}
	}
	if l.cutOff > 0 {
		fmt.Fprintf(out, "\nand %s more of %s: -n 0 lists all\n", page.Grouped(l.cutOff), page.Grouped(l.All))
	}
	return out.Flush()
}

// nothing says that there is nothing to list.
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
	if l.Ended {
		text += " --at peak lists each region at its fullest; `ttmem leaks` reports what was never freed."
	}
	return text
}

// deviceName is the board and the architecture of a chip, each after a separator.
func (l *List) deviceName(id int, layout page.Layout) (name string) {
	for i := range l.Snap.Devices {
		d := &l.Snap.Devices[i]
		for _, part := range []string{d.Board, d.Arch} {
			if d.ID == id && part != "" {
				name += layout.Separator() + page.Clean(part)
			}
		}
	}
	return name
}

// capacity is the size of a region of a chip; 0 if it is not known.
func (l *List) capacity(id int, region event.Region) uint64 {
	for i := range l.Snap.Devices {
		if d := &l.Snap.Devices[i]; d.ID == id {
			if r := d.Regions.Banked(region); r != nil {
				return r.CapacityBytes
			}
		}
	}
	return 0
}

// The columns of a row; its name follows, or has its own line.
const (
	addressColumns = 14
	banksColumns   = 5
	ageColumns     = 10
	pidColumns     = 8
	layoutColumns  = 15
	rowColumns     = addressColumns + 2*page.SizeColumns + 3 + banksColumns + ageColumns + pidColumns + 2 + layoutColumns
	// fewColumns are those without the process and the layout.
	fewColumns = addressColumns + 2*page.SizeColumns + 3 + banksColumns + ageColumns
)

// writeRegion writes one region of a chip, with those of its rows that are listed.
func (l *List) writeRegion(out *bufio.Writer, layout page.Layout, region event.Region, id int, total sectionTotal, rows []int) {
	noun, each, parts, of := "buffer", "per bank × banks", " banks", ""
	if region == event.CB {
		noun, each, parts, of = "static buffer", "per core × cores", " cores", ", placed anew by each program that runs"
	}
	if layout.ASCII {
		each = strings.Replace(each, "×", "x", 1)
	}
	if capacity := l.capacity(id, region); capacity > 0 {
		of = fmt.Sprintf(" of %s, %s", page.Bytes(capacity), page.Percent(total.bytes, capacity))
	}
	name := region.String()
	if region == event.CB {
		name = "CBs, DFBs"
	}
	layout.WriteTitle(out, " ", name, fmt.Sprintf("  %s, %s%s", page.Count(total.count, noun), page.Bytes(total.bytes), of))
	rows = slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return l.Rows[i].Region != region })
	titles := make([]string, len(rows))
	widest := 0
	for i, row := range rows {
		titles[i] = l.rowTitle(&l.Rows[row], layout)
		widest = max(widest, page.Width(titles[i]))
	}
	if len(rows) == 0 {
		return
	}
	oneLine := layout.Width == 0 || rowColumns+2+widest <= layout.Width
	few := layout.Width > 0 && rowColumns > layout.Width
	least := layout.Width > 0 && fewColumns > layout.Width
	head := page.Right("address", addressColumns) + page.Right("allocated", page.SizeColumns)
	if !least {
		head += page.Right(each, page.SizeColumns+3+banksColumns)
	}
	head += page.Right("age", ageColumns)
	if !few {
		head += page.Right("PID", pidColumns) + "  " + page.Left("layout", layoutColumns)
	}
	if oneLine {
		head += "  name"
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, strings.TrimRight(head, " ")))
	for i, row := range rows {
		a := &l.Rows[row]
		line := page.Right(fmt.Sprintf("%#x", a.Address), addressColumns) + page.Right(page.Bytes(a.Bytes()), page.SizeColumns)
		share := page.Right(page.Bytes(a.BytesPerBank), page.SizeColumns) + layout.Pick(" × ", " x ") + page.Left(fmt.Sprint(a.Banks), banksColumns)
		if !least {
			line += share
		}
		line += page.Right(l.age(a), ageColumns)
		title := titles[i]
		kind := strings.ReplaceAll(a.Layout, "_", " ")
		if few {
			title = fmt.Sprintf("PID %d, %s, %s", a.PID, kind, title)
		} else {
			line += page.Right(fmt.Sprint(a.PID), pidColumns) + "  " + page.Left(kind, layoutColumns)
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
	title := a.WithCaller(l.Title(a, layout.Separator()))
	if a.Chips > 1 {
		title += fmt.Sprintf(", shared across %d chips", a.Chips)
	}
	if a.Static != nil && a.Static.Global {
		title += ", in an L1 buffer"
	}
	return title
}

// age is how long a row has been live.
func (l *List) age(a *alloc.Row) string {
	if a.BeforeAttach {
		return "earlier"
	}
	return page.Seconds(a.Age())
}
