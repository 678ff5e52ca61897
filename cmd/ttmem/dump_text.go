package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// sectionTotal is what of one region of one chip is asked for.
type sectionTotal struct{ count, bytes uint64 }

// writeText writes the rows by device and region. Chips that have the same are one
// section.
func (l *listing) writeText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, l.others)
	if l.all == 0 {
		layout.Write(out, 0, page.NoStyle, l.nothing())
		return out.Flush()
	}
	var sites []*site
	listed := make(map[*site]bool)
	for i := range l.rows {
		if s := l.rows[i].site; !listed[s] {
			listed[s] = true
			sites = append(sites, s)
		}
	}
	tellSitesApart(sites)
	type chip struct {
		rows   []int
		totals [event.NumRegions]sectionTotal
	}
	chips := make(map[int]*chip)
	noChip := []int{-1} // where it is not known which
	for i := range l.rows {
		a := &l.rows[i]
		on := a.devices
		if len(on) == 0 {
			on = noChip
		}
		for _, id := range on {
			c := chips[id]
			if c == nil {
				c = &chip{}
				chips[id] = c
			}
			t := &c.totals[a.region]
			t.count++
			if a.static == nil || !a.static.Global {
				t.bytes += a.bytes()
			}
			if i < len(l.rows)-l.cutOff {
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
			title = "no known chip"
		case len(s.ids) > 1:
			title += " (each)"
		}
		layout.WriteTitle(out, "", title, s.name)
		for _, region := range shownRegions {
			if s.totals[region].count > 0 {
				l.writeRegion(out, layout, region, s.ids[0], s.totals[region], s.rows)
			}
		}
	}
	if l.cutOff > 0 {
		fmt.Fprintf(out, "\nand %s more of %s: -n 0 lists all\n", page.Grouped(l.cutOff), page.Grouped(l.all))
	}
	return out.Flush()
}

// nothing says that there is nothing to list.
func (l *listing) nothing() string {
	if l.there > 0 {
		text := fmt.Sprintf("Nothing of that is allocated %s: %s there, of which none is what the flags ask for.", l.of, page.Count(uint64(l.there), "buffer"))
		if f := l.filter.regions; slices.Contains(f, event.L1) && !slices.Contains(f, event.CB) {
			text += " Circular and dataflow buffers are --region CB."
		}
		return text
	}
	text := fmt.Sprintf("Nothing is allocated %s.", l.of)
	if len(l.filter.regions) > 0 {
		text = fmt.Sprintf("Nothing of %s is allocated %s.", strings.Join(regionNames(l.filter.regions), ", "), l.of)
	}
	if l.ended {
		text += " --at peak lists each region as it was when it was fullest; `ttmem leaks` tells what was never given back."
	}
	return text
}

// deviceName is what kind of chip it is.
func (l *listing) deviceName(id int, layout page.Layout) (name string) {
	for i := range l.snap.Devices {
		d := &l.snap.Devices[i]
		for _, part := range []string{d.Board, d.Arch} {
			if d.ID == id && part != "" {
				name += layout.Separator() + page.Clean(part)
			}
		}
	}
	return name
}

// capacity is what the region of a chip can hold, 0 where that is not known.
func (l *listing) capacity(id int, region event.Region) uint64 {
	for i := range l.snap.Devices {
		if d := &l.snap.Devices[i]; d.ID == id {
			if r := d.Regions.Banked(region); r != nil {
				return r.CapacityBytes
			}
		}
	}
	return 0
}

// The columns of a row; its name follows, or is in a line of its own.
const (
	addressColumns = 14
	sizeColumns    = 11
	banksColumns   = 5
	ageColumns     = 10
	pidColumns     = 8
	layoutColumns  = 15
	rowColumns     = addressColumns + 2*sizeColumns + 3 + banksColumns + ageColumns + pidColumns + 2 + layoutColumns
	// fewColumns are those without the process and the layout.
	fewColumns = addressColumns + 2*sizeColumns + 3 + banksColumns + ageColumns
)

// writeRegion writes one region of a chip, with those of its rows that are listed.
func (l *listing) writeRegion(out *bufio.Writer, layout page.Layout, region event.Region, id int, total sectionTotal, rows []int) {
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
	rows = slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return l.rows[i].region != region })
	titles := make([]string, len(rows))
	widest := 0
	for i, row := range rows {
		titles[i] = l.rowTitle(&l.rows[row], layout)
		widest = max(widest, page.Width(titles[i]))
	}
	if len(rows) == 0 {
		return
	}
	oneLine := layout.Width == 0 || rowColumns+2+widest <= layout.Width
	few := layout.Width > 0 && rowColumns > layout.Width
	least := layout.Width > 0 && fewColumns > layout.Width
	head := page.Right("address", addressColumns) + page.Right("allocated", sizeColumns)
	if !least {
		head += page.Right(each, sizeColumns+3+banksColumns)
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
		a := &l.rows[row]
		line := page.Right(fmt.Sprintf("%#x", a.address), addressColumns) + page.Right(page.Bytes(a.bytes()), sizeColumns)
		share := page.Right(page.Bytes(a.perBank), sizeColumns) + layout.Pick(" × ", " x ") + page.Left(fmt.Sprint(a.banks), banksColumns)
		if !least {
			line += share
		}
		line += page.Right(l.age(a), ageColumns)
		title := titles[i]
		kind := strings.ReplaceAll(a.layout, "_", " ")
		if few {
			title = fmt.Sprintf("PID %d, %s, %s", a.pid, kind, title)
		} else {
			line += page.Right(fmt.Sprint(a.pid), pidColumns) + "  " + page.Left(kind, layoutColumns)
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

// rowTitle is the name of a row, and what else there is to say of it.
func (l *listing) rowTitle(a *allocation, layout page.Layout) string {
	title := a.withCaller(l.title(a, layout.Separator()))
	if a.chips > 1 {
		title += fmt.Sprintf(", shared across %d chips", a.chips)
	}
	if a.static != nil && a.static.Global {
		title += ", in an L1 buffer"
	}
	return title
}

// age is how long it has been there.
func (l *listing) age(a *allocation) string {
	if a.before {
		return "earlier"
	}
	return page.Seconds(a.age())
}
