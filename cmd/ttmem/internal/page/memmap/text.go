package memmap

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// mapColumns is the largest width of a map: it fits into a terminal of 80 columns.
const mapColumns = 76

func mapWidth(l page.Layout) int { return min(mapColumns, l.Columns()-2) }

func (m *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	m.order()
	layout.WriteOthers(out, m.Others)
	if len(m.Maps) == 0 {
		layout.Write(out, 0, page.NoStyle, m.nothing())
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, fmt.Sprintf("%s buffers, %s in part, %s CBs and DFBs, %s free",
		layout.Pick("█", "#"), layout.Pick("▄", "+"), layout.Pick("▒", ":"), layout.Pick("·", ".")))
	whole, brief := m.worthDrawing()
	for _, r := range whole {
		for i := range r.Space.Blocks {
			m.Names.Site(r.Space.Blocks[i].Stack)
		}
		for _, row := range r.staticRows() {
			m.Names.Site(row.Static.Stack)
		}
	}
	alloc.Distinguish(maps.Values(m.Names.Sites))
	for i, r := range whole {
		fmt.Fprintln(out)
		if i == 0 || !slices.Equal(r.devices, whole[i-1].devices) {
			of := layout.Separator() + m.Of
			if r.board != "" {
				of = layout.Separator() + r.board + of
			}
			layout.WriteTitle(out, "", page.EachChip(r.devices), of)
		}
		m.writeRegion(out, layout, r)
	}
	m.writeBriefly(out, layout, brief)
	return out.Flush()
}

// nothing returns the text of an empty page.
func (m *Page) nothing() string {
	text := "Nothing is allocated " + m.Of + "."
	if len(m.Regions) > 0 {
		text = "Nothing is allocated in " + strings.Join(alloc.RegionNames(m.Regions), ", ") + " " + m.Of + "."
	}
	if m.Ended != "" {
		text += fmt.Sprintf(" `ttmem map %s --at peak` draws each region at its peak.", page.Clean(m.Ended))
	}
	return text
}

func (m *Page) writeRegion(out *bufio.Writer, layout page.Layout, r *regionMap) {
	s := r.Space
	of := ""
	alike := "with the same layout"
	if s.PerCore > 0 {
		alike = page.Count(uint64(s.PerCore), "buffer") + " on single cores"
	}
	switch {
	case s.Known() && s.Banks > 0:
		of = fmt.Sprintf("  %s of %s, %s", page.Count(uint64(s.Banks), "bank"), page.Bytes(s.End-s.Start), alike)
	case s.Banks > 0:
		of = fmt.Sprintf("  %s, %s", page.Count(uint64(s.Banks), "bank"), alike)
	}
	if m.UTC {
		of += ", at " + m.Clock.UTC(r.nowNs) + " UTC"
	}
	layout.WriteTitle(out, " ", s.Region.String(), of)
	m.writeStrip(out, layout, r, r.start, r.end)
	for _, part := range r.zooms() {
		fmt.Fprintln(out, layout.Paint(page.Dim, "  of which:"))
		m.writeStrip(out, layout, r, part[0], part[1])
	}
	for _, line := range r.summary() {
		for _, part := range page.Wrap(line, mapWidth(layout)) {
			fmt.Fprintln(out, "  "+part)
		}
	}
	m.writeRows(out, layout, r)
}

// writeStrip draws the addresses from start to end.
func (m *Page) writeStrip(out *bufio.Writer, layout page.Layout, r *regionMap, start, end uint64) {
	from, to := fmt.Sprintf("%#x", start), fmt.Sprintf("%#x", end)
	columns := mapWidth(layout)
	fmt.Fprintln(out, "  "+layout.Paint(page.Dim, from+page.Right(to, columns-page.Width(from))))
	var strip strings.Builder
	for _, c := range r.cells(start, end, columns) {
		switch size := c.end - c.start; {
		case c.used >= size:
			strip.WriteString(layout.Pick("█", "#"))
		case c.used > 0 || c.part:
			strip.WriteString(layout.Pick("▄", "+"))
		case c.static > 0:
			strip.WriteString(layout.Pick("▒", ":"))
		default:
			strip.WriteString(layout.Pick("·", "."))
		}
	}
	fmt.Fprintln(out, "  "+strip.String())
}

// summary says how much is used and free.
func (r *regionMap) summary() (lines []string) {
	s := r.Space
	per, all := "per bank", ""
	if s.PerCore > 0 {
		per, all = "in the fullest bank", " of all banks"
	}
	text := fmt.Sprintf("%s: %s in %s%s", per, page.Bytes(s.BytesPerBank), page.Count(uint64(len(s.Blocks)), "buffer"), all)
	if s.Known() {
		text += fmt.Sprintf(", %s free in %s, the largest %s, fragmentation %s", page.Bytes(s.FreeBytesPerBank),
			page.Count(uint64(len(s.Holes)), "hole"), page.Bytes(s.LargestFreeBytesPerBank),
			cmp.Or(page.Percent(s.FreeBytesPerBank-s.LargestFreeBytesPerBank, s.FreeBytesPerBank), "0%"))
	} else if r.scattered() {
		text += "; some addresses differ from core to core: free memory is unknown"
	} else {
		text += "; the region's bounds and free memory are unknown"
	}
	lines = append(lines, text)
	if rows := r.staticRows(); len(rows) > 0 {
		last := rows[len(rows)-1]
		end := last.Address + last.BytesPerBank
		text := fmt.Sprintf("circular and dataflow buffers end at %#x", end)
		if len(s.Blocks) > 0 && !r.scattered() {
			lowest := s.Blocks[0].Address
			if lowest >= end {
				text += fmt.Sprintf(", %s below the lowest buffer at %#x", page.Bytes(lowest-end), lowest)
			} else {
				text += fmt.Sprintf(", above the lowest buffer at %#x", lowest)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// largestRows returns the n largest rows. At most half are holes, because the buffers between the
// holes of a fragmented region are small.
func largestRows(rows []*row, n int) (largest []*row) {
	sizes := slices.SortedStableFunc(slices.Values(rows), func(a, b *row) int { return cmp.Compare(b.BytesPerBank, a.BytesPerBank) })
	used := slices.DeleteFunc(slices.Clone(sizes), func(r *row) bool { return r.free() })
	holes := slices.DeleteFunc(sizes, func(r *row) bool { return !r.free() })
	holes = holes[:min(len(holes), max(n/2, n-len(used)))]
	return append(holes, used[:n-len(holes)]...)
}

// mapRowColumns is the minimum width at which a row and its name share a line.
const mapRowColumns = 72

// writeRows lists the largest buffers and holes, in order of their addresses.
func (m *Page) writeRows(out *bufio.Writer, layout page.Layout, r *regionMap) {
	rows := r.rows()
	all := len(rows)
	if m.Limit > 0 && m.Limit < all {
		rows = largestRows(rows, m.Limit)
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(a.Address, b.Address) })
	}
	narrow := layout.Width > 0 && layout.Width < mapRowColumns
	columns := page.Columns{12, 11, 9}
	head := columns.Line("address", "per bank", "age")
	if !narrow {
		head += "  name"
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, head))
	for _, row := range rows {
		address, style := fmt.Sprintf("%#x", row.Address), page.Dim
		title, whole, age := "free", "free", "" // a hole has no age
		if !row.free() {
			a := row.allocation(m.Names, r.nowNs)
			title = m.title(row, a, layout.Separator())
			whole, age = a.WithCaller(title), page.Seconds(a.Age())
			if a.BeforeAttach {
				age = "earlier"
			}
			if a.Owner.Path != "" {
				whole = m.Names.Line(a, layout.Separator())
				title = whole
			}
		}
		if b := row.Buffer; b != nil {
			style = page.NoStyle
			if b.PerCore {
				cores := layout.Separator() + alloc.Cores(b.Cores())
				title, whole = title+cores, whole+cores
			}
			if b.Scattered() {
				address = "differs"
			}
		}
		if row.free() && narrow {
			fmt.Fprintln(out, columns[:2].Line(address, page.Bytes(row.BytesPerBank))+layout.Paint(style, columns[2:].Line(title)))
			continue
		}
		line := columns.Line(address, page.Bytes(row.BytesPerBank), age)
		switch room := layout.Width - page.Width(line) - 2; {
		case layout.Width == 0 || !narrow && page.Width(whole) <= room:
			fmt.Fprintln(out, line+"  "+layout.Paint(style, whole))
		case !narrow && page.Width(title) <= room:
			fmt.Fprintln(out, line+"  "+layout.Paint(style, title))
		default:
			fmt.Fprintln(out, line)
			layout.Write(out, page.NameIndent, style, whole)
		}
	}
	if n := all - len(rows); n > 0 {
		fmt.Fprintf(out, "  and %s more: -n 0 lists all\n", page.Grouped(n))
	}
}
