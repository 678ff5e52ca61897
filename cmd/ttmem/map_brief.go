package main

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"ttmem/tracer/event"
)

// drawnMaps is how many maps of a region are drawn, where chips use it in different ways
// and nobody asks for more.
const drawnMaps = 4

// worthDrawing divides the maps into those that are drawn and those that are told of in a
// line: of each region those are drawn in which the least can be allocated.
func (m *mapPage) worthDrawing() (whole, brief []*regionMap) {
	if m.n == 0 || len(m.asked) > 0 {
		return m.maps, nil
	}
	of := make(map[event.Region][]*regionMap)
	for _, r := range m.maps {
		of[r.space.Region] = append(of[r.space.Region], r)
	}
	for _, maps := range of {
		slices.SortStableFunc(maps, func(a, b *regionMap) int {
			return cmp.Or(cmp.Compare(a.space.LargestFreeBytesPerBank, b.space.LargestFreeBytesPerBank),
				cmp.Compare(len(b.space.Blocks), len(a.space.Blocks)))
		})
	}
	for _, r := range m.maps {
		// one more would take as much room as to tell of it
		if i := slices.Index(of[r.space.Region], r); i < drawnMaps || len(of[r.space.Region]) == drawnMaps+1 {
			whole = append(whole, r)
		} else {
			brief = append(brief, r)
		}
	}
	return whole, brief
}

// writeBriefly writes a line for each map, by region, and one for those that are as full.
func (m *mapPage) writeBriefly(out *bufio.Writer, layout listLayout, maps []*regionMap) {
	if len(maps) == 0 {
		return
	}
	fmt.Fprintln(out)
	layout.write(out, 0, noStyle, "Other chips, on which there is more room: --chip N draws one, -n 0 all.")
	narrow := layout.width > 0 && layout.width < mapRowColumns
	for _, region := range mappedRegions {
		var lines []string
		chips := make(map[string][]int) // of each line
		for _, r := range maps {
			if r.space.Region != region {
				continue
			}
			s := r.space
			line := right(formatBytes(r.used()), 11) + right(formatBytes(s.LargestFreeBytesPerBank), 14)
			if !narrow {
				line += right(formatBytes(s.FreeBytesPerBank), 11) + right(formatGrouped(len(s.Blocks)), 9) + right(formatGrouped(len(s.Holes)), 7)
			}
			if chips[line] == nil {
				lines = append(lines, line)
			}
			chips[line] = append(chips[line], r.devices...)
		}
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintln(out, " "+layout.paint(bold, region.String()))
		head := right("per bank", 11) + right("largest hole", 14)
		if !narrow {
			head += right("free", 11) + right("buffers", 9) + right("holes", 7)
		}
		fmt.Fprintln(out, layout.paint(dim, head+"  chips"))
		for _, line := range lines {
			ids := slices.Sorted(slices.Values(chips[line]))
			if text := line + "  " + chipNumbers(ids); layout.width == 0 || width(text) <= layout.width {
				fmt.Fprintln(out, text)
			} else {
				fmt.Fprintln(out, line)
				layout.write(out, nameIndent, noStyle, formatIDs(ids))
			}
		}
	}
}
