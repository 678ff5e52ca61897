package memmap

import (
	"bufio"
	"fmt"
	"html"
	"io"

	"ttmem/cmd/ttmem/page"
)

// The picture of a map, in pixels: a panel for each region, below each other, with a
// strip of all its addresses and one for each enlarged part.
const (
	mapSVGWidth, mapSVGSide = 1100, 24
	mapSVGPlot              = mapSVGWidth - 2*mapSVGSide
	mapSVGTop               = 72
	mapSVGPanelTop          = 30 // of the first strip in its panel
	mapSVGStrip             = 86 // of a strip with its addresses
	mapSVGBar               = 44
	mapSVGPanelEnd          = 34
)

const mapSVGStyle = `.back { fill: currentColor; opacity: .08 }
rect:hover { opacity: .6 }
.block { stroke: #fff; stroke-width: .5 }
.static { fill: #e08a2b }
`

// WriteSVG draws the maps as a standalone picture.
func (m *Page) WriteSVG(w io.Writer) error {
	m.order()
	out := bufio.NewWriter(w)
	height := mapSVGTop
	for _, r := range m.Maps {
		height += r.svgHeight()
	}
	height = max(height, mapSVGTop+40)
	fmt.Fprint(out, page.SVGHead(mapSVGWidth, height, mapSVGStyle, ".block { stroke: #14181f } ", "Device memory by address"))
	const legend = "; orange: circular and dataflow buffers"
	fmt.Fprintf(out, `<text class="faint" x="%d" y="52">%s</text>`+"\n", mapSVGSide, html.EscapeString(m.Of+legend))
	if len(m.Maps) == 0 {
		fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", mapSVGSide, mapSVGTop+20, html.EscapeString(m.nothing()))
	}
	y := mapSVGTop
	for _, r := range m.Maps {
		m.drawRegion(out, r, y)
		y += r.svgHeight()
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

func (r *regionMap) svgHeight() int {
	return mapSVGPanelTop + mapSVGStrip*(1+len(r.zooms())) + mapSVGPanelEnd
}

func (m *Page) drawRegion(out io.Writer, r *regionMap, y int) {
	title := page.Chips(r.devices)
	if r.board != "" {
		title += " · " + r.board
	}
	fmt.Fprintf(out, `<text class="region" x="%d" y="%d">%s<tspan class="faint" font-weight="400" dx="10">%s, %s</tspan></text>`+"\n",
		mapSVGSide, y+16, r.Space.Region, html.EscapeString(title), page.Count(uint64(r.Space.Banks), "bank")+" used alike")
	y += mapSVGPanelTop
	m.drawStrip(out, r, y, r.start, r.end)
	for _, part := range r.zooms() {
		y += mapSVGStrip
		m.drawStrip(out, r, y, part[0], part[1])
	}
	y += mapSVGStrip
	for i, line := range r.summary() {
		fmt.Fprintf(out, `<text class="faint" x="%d" y="%d">%s</text>`+"\n", mapSVGSide, y+16*i, html.EscapeString(line))
	}
}

// drawStrip draws the addresses from start to end.
func (m *Page) drawStrip(out io.Writer, r *regionMap, y int, start, end uint64) {
	x := func(address uint64) float64 {
		return mapSVGSide + float64(min(max(address, start), end)-start)/float64(max(1, end-start))*mapSVGPlot
	}
	fmt.Fprintf(out, `<rect class="back" x="%d" y="%d" width="%d" height="%d"/>`+"\n", mapSVGSide, y, mapSVGPlot, mapSVGBar)
	rows := r.rows()
	for i := 0; i < len(rows); i++ {
		row := &rows[i]
		from, to := row.address, row.address+row.bytes
		if to <= start || from >= end {
			continue
		}
		// a buffer that is too narrow to be seen is drawn together with those after it
		bytes, n := row.bytes, 1
		for row.block != nil && i+1 < len(rows) && rows[i+1].block != nil && x(rows[i+1].address+rows[i+1].bytes)-x(from) < 0.5 {
			i++
			to = max(to, rows[i].address+rows[i].bytes)
			bytes += rows[i].bytes
			n++
		}
		class, fill := "hole", ` fill-opacity="0"`
		tip := fmt.Sprintf("%s\n%#x, %s per bank", m.title(row, " · "), row.address, page.Bytes(row.bytes))
		if age := r.age(row); age != "" && age != "earlier" {
			tip += ", " + age + " old"
		}
		switch {
		case row.block != nil:
			class, fill = "block", fmt.Sprintf(` fill="%s"`, mapColour(m.title(row, " ")))
			tip += fmt.Sprintf("\nbuffer %d of PID %d", row.block.BufferID, row.block.PID)
			if call := row.block.Stack; call != nil {
				if p := page.Place(call.Frames()); p != "" {
					tip += "\n" + p
				}
			}
		case row.static != nil:
			class, fill = "static", ""
		}
		if n > 1 {
			tip = fmt.Sprintf("%s, %s per bank\n%#x", page.Count(uint64(n), "buffer"), page.Bytes(bytes), from)
		}
		fmt.Fprintf(out, `<rect class="%s"%s x="%.2f" y="%d" width="%.2f" height="%d"><title>%s</title></rect>`+"\n",
			class, fill, x(from), y, max(x(to)-x(from), 0.4), mapSVGBar, html.EscapeString(tip))
	}
	fmt.Fprintf(out, `<text class="faint" x="%d" y="%d">%#x</text>`+"\n", mapSVGSide, y+mapSVGBar+18, start)
	fmt.Fprintf(out, `<text class="faint" x="%d" y="%d" text-anchor="end">%#x</text>`+"\n", mapSVGWidth-mapSVGSide, y+mapSVGBar+18, end)
}

// mapColour is the colour of a name, from green to violet: red and orange have other
// meanings.
func mapColour(name string) string {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return fmt.Sprintf("hsl(%d %d%% %d%%)", 150+h%140, 45+h/140%25, 42+h/4096%20)
}
