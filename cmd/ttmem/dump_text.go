package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// sectionTotal is what of one region of one chip is asked for.
type sectionTotal struct{ count, bytes uint64 }

// writeText writes the rows by device and region. Chips that have the same are one
// section.
func (l *listing) writeText(w io.Writer, layout listLayout) error {
	out := bufio.NewWriter(w)
	layout.writeOthers(out, l.others)
	if l.all == 0 {
		layout.write(out, 0, noStyle, l.nothing())
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
	for _, id := range sortedInts(chips) {
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
		title := formatIDs(s.ids)
		switch {
		case s.ids[0] < 0:
			title = "no known chip"
		case len(s.ids) > 1:
			title += " (each)"
		}
		layout.writeTitle(out, "", title, s.name)
		for _, region := range shownRegions {
			if s.totals[region].count > 0 {
				l.writeRegion(out, layout, region, s.ids[0], s.totals[region], s.rows)
			}
		}
	}
	if l.cutOff > 0 {
		fmt.Fprintf(out, "\nand %s more of %s: -n 0 lists all\n", formatGrouped(l.cutOff), formatGrouped(l.all))
	}
	return out.Flush()
}

// nothing says that there is nothing to list.
func (l *listing) nothing() string {
	if l.there > 0 {
		text := fmt.Sprintf("Nothing of that is allocated %s: %s there, of which none is what the flags ask for.", l.of, formatCount(uint64(l.there), "buffer"))
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
func (l *listing) deviceName(id int, layout listLayout) (name string) {
	for i := range l.snap.Devices {
		d := &l.snap.Devices[i]
		for _, part := range []string{d.Board, d.Arch} {
			if d.ID == id && part != "" {
				name += layout.separator() + plain(part)
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
	// nameIndent is how far a name is indented that is in a line of its own.
	nameIndent = 6
)

// writeRegion writes one region of a chip, with those of its rows that are listed.
func (l *listing) writeRegion(out *bufio.Writer, layout listLayout, region event.Region, id int, total sectionTotal, rows []int) {
	noun, each, parts, of := "buffer", "per bank × banks", " banks", ""
	if region == event.CB {
		noun, each, parts, of = "static buffer", "per core × cores", " cores", ", placed anew by each program that runs"
	}
	if layout.ascii {
		each = strings.Replace(each, "×", "x", 1)
	}
	if capacity := l.capacity(id, region); capacity > 0 {
		of = fmt.Sprintf(" of %s, %s", formatBytes(capacity), formatPercent(total.bytes, capacity))
	}
	name := region.String()
	if region == event.CB {
		name = "CBs, DFBs"
	}
	layout.writeTitle(out, " ", name, fmt.Sprintf("  %s, %s%s", formatCount(total.count, noun), formatBytes(total.bytes), of))
	rows = slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return l.rows[i].region != region })
	titles := make([]string, len(rows))
	widest := 0
	for i, row := range rows {
		titles[i] = l.rowTitle(&l.rows[row], layout)
		widest = max(widest, width(titles[i]))
	}
	if len(rows) == 0 {
		return
	}
	oneLine := layout.width == 0 || rowColumns+2+widest <= layout.width
	few := layout.width > 0 && rowColumns > layout.width
	least := layout.width > 0 && fewColumns > layout.width
	head := right("address", addressColumns) + right("allocated", sizeColumns)
	if !least {
		head += right(each, sizeColumns+3+banksColumns)
	}
	head += right("age", ageColumns)
	if !few {
		head += right("PID", pidColumns) + "  " + left("layout", layoutColumns)
	}
	if oneLine {
		head += "  name"
	}
	fmt.Fprintln(out, layout.paint(dim, strings.TrimRight(head, " ")))
	for i, row := range rows {
		a := &l.rows[row]
		line := right(fmt.Sprintf("%#x", a.address), addressColumns) + right(formatBytes(a.bytes()), sizeColumns)
		share := right(formatBytes(a.perBank), sizeColumns) + layout.pick(" × ", " x ") + left(fmt.Sprint(a.banks), banksColumns)
		if !least {
			line += share
		}
		line += right(l.age(a), ageColumns)
		title := titles[i]
		kind := strings.ReplaceAll(a.layout, "_", " ")
		if few {
			title = fmt.Sprintf("PID %d, %s, %s", a.pid, kind, title)
		} else {
			line += right(fmt.Sprint(a.pid), pidColumns) + "  " + left(kind, layoutColumns)
		}
		if oneLine {
			fmt.Fprintln(out, line+"  "+title)
			continue
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
		if least {
			title = strings.TrimSpace(share) + parts + ", " + title
		}
		layout.write(out, nameIndent, green, title)
	}
}

// rowTitle is the name of a row, and what else there is to say of it.
func (l *listing) rowTitle(a *allocation, layout listLayout) string {
	title := a.withCaller(l.title(a, layout.separator()))
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
	return formatSeconds(a.age())
}
