package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"ttmem/aggregate"
)

// mapColumns is how wide a map is drawn: it fits into a terminal of 80 columns.
const mapColumns = 76

func (m *mapPage) writeText(w io.Writer, layout listLayout) error {
	out := bufio.NewWriter(w)
	m.order()
	if len(m.maps) == 0 {
		fmt.Fprintln(out, m.nothing())
		return out.Flush()
	}
	fmt.Fprintln(out, layout.paint(dim, fmt.Sprintf("%s buffers, %s in part, %s CBs and DFBs, %s free\n%s",
		layout.pick("█", "#"), layout.pick("▄", "+"), layout.pick("▒", ":"), layout.pick("·", "."), m.heatLegend())))
	var sites []*site
	for _, r := range m.maps {
		rows := r.rows()
		for i := range rows {
			m.site(&rows[i])
		}
	}
	for _, s := range m.sites {
		sites = append(sites, s)
	}
	tellSitesApart(sites)
	for i, r := range m.maps {
		if i == 0 || !slices.Equal(r.devices, m.maps[i-1].devices) {
			title := formatIDs(r.devices)
			if len(r.devices) > 1 {
				title += " (each)"
			}
			if r.board != "" {
				r.board = layout.separator() + r.board
			}
			fmt.Fprintln(out, "\n"+layout.paint(bold, title)+layout.paint(dim, r.board+layout.separator()+m.of))
		} else {
			fmt.Fprintln(out)
		}
		m.writeRegion(out, layout, r)
	}
	return out.Flush()
}

func (m *mapPage) heatLegend() string {
	if m.heat == nil {
		return "how often a place was allocated is known from recordings alone"
	}
	return "digits: allocated once (1), 2 or 3 times (2), 4 to 7 times (3), and so on"
}

// nothing says that there is nothing to draw.
func (m *mapPage) nothing() string {
	text := "Nothing is allocated " + m.of + "."
	if m.ended {
		text += " --at peak draws each region when it was fullest."
	}
	return text
}

func (m *mapPage) writeRegion(out *bufio.Writer, layout listLayout, r *regionMap) {
	s := r.space
	of := ""
	switch {
	case s.Known() && s.Banks > 0:
		of = fmt.Sprintf("  %s of %s, all used alike", formatCount(uint64(s.Banks), "bank"), formatBytes(s.End-s.Start))
	case s.Banks > 0:
		of = fmt.Sprintf("  %s, all used alike", formatCount(uint64(s.Banks), "bank"))
	}
	fmt.Fprintln(out, " "+layout.paint(bold, s.Region.String())+layout.paint(dim, of))
	m.writeStrip(out, layout, r, r.start, r.end)
	for _, part := range r.zooms() {
		fmt.Fprintln(out, layout.paint(dim, "  of which:"))
		m.writeStrip(out, layout, r, part[0], part[1])
	}
	for _, line := range r.summary() {
		for _, part := range wrap(line, mapColumns) {
			fmt.Fprintln(out, "  "+part)
		}
	}
	m.writeRows(out, layout, r)
}

// writeStrip draws the addresses from start to end.
func (m *mapPage) writeStrip(out *bufio.Writer, layout listLayout, r *regionMap, start, end uint64) {
	from, to := fmt.Sprintf("%#x", start), fmt.Sprintf("%#x", end)
	fmt.Fprintln(out, "  "+layout.paint(dim, from+right(to, mapColumns-width(from))))
	var strip, heat strings.Builder
	for _, c := range r.cells(start, end, mapColumns) {
		switch size := c.end - c.start; {
		case c.used >= size:
			strip.WriteString(layout.pick("█", "#"))
		case c.used > 0:
			strip.WriteString(layout.pick("▄", "+"))
		case c.static > 0:
			strip.WriteString(layout.pick("▒", ":"))
		default:
			strip.WriteString(layout.pick("·", "."))
		}
		heat.WriteString(heatDigit(c.reused))
	}
	fmt.Fprintln(out, "  "+strip.String())
	if digits := strings.TrimRight(heat.String(), " "); digits != "" {
		fmt.Fprintln(out, "  "+layout.paint(dim, digits))
	}
}

// heatDigit is how often a place was allocated: the binary logarithm, plus one.
func heatDigit(count uint64) string {
	if count == 0 {
		return " "
	}
	return fmt.Sprint(min(9, bits.Len64(count)))
}

// summary says what is used and free.
func (r *regionMap) summary() (lines []string) {
	s := r.space
	var used uint64
	for i := range s.Blocks {
		used += s.Blocks[i].BytesPerBank
	}
	text := fmt.Sprintf("per bank: %s in %s", formatBytes(used), formatCount(uint64(len(s.Blocks)), "buffer"))
	if s.Known() {
		text += fmt.Sprintf(", %s free in %s, the largest %s, fragmentation %s", formatBytes(s.FreeBytesPerBank),
			formatCount(uint64(len(s.Holes)), "hole"), formatBytes(s.LargestFreeBytesPerBank),
			cmp.Or(formatPercent(s.FreeBytesPerBank-s.LargestFreeBytesPerBank, s.FreeBytesPerBank), "0%"))
	} else {
		text += "; where the region begins and ends is not known, so that what is free is not either"
	}
	lines = append(lines, text)
	if rows := r.staticRows(); len(rows) > 0 {
		last := rows[len(rows)-1]
		end := last.address + last.bytes
		text := fmt.Sprintf("circular and dataflow buffers end at %#x", end)
		if len(s.Blocks) > 0 {
			lowest := s.Blocks[0].Address
			if lowest >= end {
				text += fmt.Sprintf(", %s below the lowest buffer at %#x", formatBytes(lowest-end), lowest)
			} else {
				text += fmt.Sprintf(", above the lowest buffer at %#x", lowest)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// largestRows are the n largest, of which half may be holes: what lies between them is
// small where much is free in pieces.
func largestRows(rows []mapRow, n int) (largest []mapRow) {
	sizes := slices.SortedStableFunc(slices.Values(rows), func(a, b mapRow) int { return cmp.Compare(b.bytes, a.bytes) })
	isHole := func(r mapRow) bool { return r.block == nil && r.static == nil }
	used := slices.DeleteFunc(slices.Clone(sizes), isHole)
	holes := slices.DeleteFunc(sizes, func(r mapRow) bool { return !isHole(r) })
	holes = holes[:min(len(holes), max(n/2, n-len(used)))]
	return append(holes, used[:n-len(holes)]...)
}

// writeRows lists the largest buffers and holes, in order of their addresses.
func (m *mapPage) writeRows(out *bufio.Writer, layout listLayout, r *regionMap) {
	rows := r.rows()
	all := len(rows)
	if m.n > 0 && m.n < all {
		rows = largestRows(rows, m.n)
		slices.SortStableFunc(rows, func(a, b mapRow) int { return cmp.Compare(a.address, b.address) })
	}
	head := right("address", 12) + right("per bank", 11)
	if r.heat != nil {
		head += right("allocated", 10)
	}
	head += right("age", 9) + "  "
	fmt.Fprintln(out, layout.paint(dim, head+"what"))
	for i := range rows {
		row := &rows[i]
		line := right(fmt.Sprintf("%#x", row.address), 12) + right(formatBytes(row.bytes), 11)
		if r.heat != nil {
			times := ""
			if row.reuse > 0 {
				times = formatGrouped(int(row.reuse)) + layout.pick("×", "x")
			}
			line += right(times, 10)
		}
		line += right(r.age(row), 9) + "  "
		title := m.title(row, layout.separator())
		if whole := m.site(row).withCaller(title); layout.width == 0 || width(line)+width(whole) <= layout.width {
			title = whole
		}
		if room := layout.width - width(line); layout.width > 0 && width(title) > room {
			title = truncate(title, room, layout.pick("…", "~"))
			if name := m.name(row); name != nil {
				title = layout.fitName(*name, room)
			}
		}
		style := noStyle
		if row.block == nil {
			style = dim
		}
		fmt.Fprintln(out, line+layout.paint(style, title))
	}
	if n := all - len(rows); n > 0 {
		fmt.Fprintf(out, "  and %s more: -n 0 lists all\n", formatGrouped(n))
	}
}

// mapDocument is what `ttmem map --json` prints.
type mapDocument struct {
	V       int          `json:"v"`
	Regions []*mapRegion `json:"regions"`
	// Lost is how many events were lost, by cause.
	Lost  map[string]uint64 `json:"lost"`
	Notes []string          `json:"notes,omitempty"`
}

// A mapRegion is a region of chips on which it is used alike.
type mapRegion struct {
	Devices []int  `json:"devices"`
	Region  string `json:"region"`
	TimeNs  uint64 `json:"time_ns"`
	Banks   uint32 `json:"banks"`
	// StartAddress and EndAddress are where it lies in each bank; left out, with what is
	// free, where that is not known.
	StartAddress  uint64               `json:"start_address,omitempty"`
	EndAddress    uint64               `json:"end_address,omitempty"`
	Free          *aggregate.FreeSpace `json:"free,omitempty"`
	Fragmentation *float64             `json:"fragmentation,omitempty"`
	Blocks        []mapBlock           `json:"blocks"`
	Holes         []mapHole            `json:"holes"`
	Statics       []mapStatic          `json:"statics"`
	// Allocated is how often the addresses from each on were allocated; left out where
	// that is not known.
	Allocated []aggregate.HeatStep `json:"allocated,omitempty"`
}

type mapBlock struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	PID          int    `json:"pid"`
	BufferID     uint64 `json:"buffer_id"`
	SinceNs      uint64 `json:"since_ns"`
	BeforeAttach bool   `json:"before_attach,omitempty"`
	Allocated    uint64 `json:"allocated,omitempty"`
	Name         string `json:"name"`
}

type mapHole struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Allocated    uint64 `json:"allocated,omitempty"`
}

type mapStatic struct {
	Address      uint64 `json:"address"`
	BytesPerCore uint64 `json:"bytes_per_core"`
	Programs     int    `json:"programs"`
	Name         string `json:"name"`
}

func (m *mapPage) writeJSON(w io.Writer) error {
	m.order()
	doc := &mapDocument{V: 1, Regions: []*mapRegion{}, Lost: m.snap.Lost, Notes: m.notes}
	for _, r := range m.maps {
		one := &mapRegion{
			Devices: r.devices, Region: r.space.Region.String(), TimeNs: r.nowNs, Banks: r.space.Banks, Allocated: r.heat,
			Blocks: []mapBlock{}, Holes: []mapHole{}, Statics: []mapStatic{},
		}
		if r.space.Known() {
			part := r.fragmentation()
			one.StartAddress, one.EndAddress, one.Free, one.Fragmentation = r.space.Start, r.space.End, &r.space.FreeSpace, &part
		}
		rows := r.rows()
		for i := range rows {
			row := &rows[i]
			switch {
			case row.block != nil:
				one.Blocks = append(one.Blocks, mapBlock{
					row.address, row.bytes, row.block.PID, row.block.BufferID, row.block.SinceNs, row.block.BeforeAttach, row.reuse, m.title(row, " · "),
				})
			case row.static != nil:
				one.Statics = append(one.Statics, mapStatic{row.address, row.bytes, row.programs, m.title(row, " · ")})
			default:
				one.Holes = append(one.Holes, mapHole{row.address, row.bytes, row.reuse})
			}
		}
		doc.Regions = append(doc.Regions, one)
	}
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(doc); err != nil {
		return err
	}
	return out.Flush()
}
