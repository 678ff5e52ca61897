package memmap

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// drawnMaps is the number of maps of a region that are drawn by default, if chips differ.
const drawnMaps = 4

// worthDrawing divides the maps into those to draw and those with only a line. For each region it
// draws the maps with the least room for an allocation.
func (m *Page) worthDrawing() (whole, brief []*regionMap) {
	if m.Limit == 0 || len(m.Chips) > 0 {
		return m.Maps, nil
	}
	of := make(map[event.Region][]*regionMap)
	for _, r := range m.Maps {
		of[r.Space.Region] = append(of[r.Space.Region], r)
	}
	for _, maps := range of {
		slices.SortStableFunc(maps, func(a, b *regionMap) int {
			return cmp.Or(cmp.Compare(a.Space.LargestFreeBytesPerBank, b.Space.LargestFreeBytesPerBank),
				cmp.Compare(len(b.Space.Blocks), len(a.Space.Blocks)))
		})
	}
	for _, r := range m.Maps {
		// one line would take as much room as one more map
		if i := slices.Index(of[r.Space.Region], r); i < drawnMaps || len(of[r.Space.Region]) == drawnMaps+1 {
			whole = append(whole, r)
		} else {
			brief = append(brief, r)
		}
	}
	return whole, brief
}

// writeBriefly writes a line for each map, by region; maps that are equally full share one.
func (m *Page) writeBriefly(out *bufio.Writer, layout page.Layout, maps []*regionMap) {
	if len(maps) == 0 {
		return
	}
	fmt.Fprintln(out)
	layout.Write(out, 0, page.NoStyle, "Other chips, with more room: --chip N draws one, -n 0 all of them.")
	columns := page.Columns{11, 14, 11, 9, 7}
	if layout.Width > 0 && layout.Width < mapRowColumns {
		columns = columns[:2]
	}
	row := func(r *regionMap) string {
		s := r.Space
		return columns.Line(page.Bytes(s.BytesPerBank), page.Bytes(s.LargestFreeBytesPerBank),
			page.Bytes(s.FreeBytesPerBank), page.Grouped(len(s.Blocks)), page.Grouped(len(s.Holes)))
	}
	for _, region := range Regions {
		these := slices.DeleteFunc(slices.Clone(maps), func(r *regionMap) bool { return r.Space.Region != region })
		if len(these) == 0 {
			continue
		}
		fmt.Fprintln(out, " "+layout.Paint(page.Bold, region.String()))
		fmt.Fprintln(out, layout.Paint(page.Dim, columns.Line("per bank", "largest hole", "free", "buffers", "holes")+"  chips"))
		for _, same := range page.Alike(these, func(a, b *regionMap) bool { return row(a) == row(b) }) {
			var ids []int
			for _, r := range same {
				ids = append(ids, r.devices...)
			}
			line := row(same[0])
			if text := line + "  " + page.ChipNumbers(ids); layout.Width == 0 || page.Width(text) <= layout.Width {
				fmt.Fprintln(out, text)
			} else {
				fmt.Fprintln(out, line)
				layout.Write(out, page.NameIndent, page.NoStyle, page.Chips(ids))
			}
		}
	}
}
