package peak

import (
	"fmt"
	"html"
	"io"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// The picture, in pixels: a panel for each region of chips that are alike, below each
// other, each with the area of its timeline.
const (
	svgWidth, svgLeft, svgRight   = 1100, 92, 24
	svgTop, svgPanel, svgArea     = 64, 232, 150
	svgAreaTop                    = 40 // of the area in its panel
	svgPlot                       = svgWidth - svgLeft - svgRight
	svgTicks                      = 10
	svgTipHolders, svgLabelMargin = 5, 90
)

const svgStyle = `.grid { stroke: currentColor; opacity: .12 }
.axis { stroke: currentColor; opacity: .5 }
.range { fill: #2b7de0; opacity: .3 }
.area { fill: #2b7de0; opacity: .75 }
.static { fill: #e08a2b; opacity: .9 }
.capacity { stroke: #c8322b; stroke-dasharray: 6 4 }
.peak { fill: #c8322b }
.peakline { stroke: #c8322b; opacity: .6 }
`

// WriteSVG draws the timelines. The picture needs nothing else.
func (p *Page) WriteSVG(w io.Writer) error {
	var b strings.Builder
	height := svgTop + max(1, len(p.regions))*svgPanel
	b.WriteString(page.SVGHead(svgWidth, height, svgStyle, "", "Device memory over time"))
	fmt.Fprintf(&b, `<text class="faint" x="24" y="50">%s, over %s</text>`+"\n", html.EscapeString(page.Clean(p.Of)), page.Moment(p.endNs-p.beginNs))
	if len(p.regions) == 0 {
		fmt.Fprintf(&b, `<text x="24" y="%d">%s</text>`+"\n", svgTop+40, html.EscapeString(p.nothing()))
	}
	for i, c := range p.regions {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", svgTop+i*svgPanel)
		p.drawPanel(&b, c)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// drawPanel draws the timeline of a region.
func (p *Page) drawPanel(b *strings.Builder, c *chipsPeak) {
	text := func(class string, x, y int, anchor, s string) {
		fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(s))
	}
	top := svgScale(c)
	y := func(bytes uint64) float64 {
		return svgAreaTop + svgArea*(1-float64(bytes)/float64(max(1, top)))
	}
	fmt.Fprintf(b, `<text class="region" x="24" y="24">%s<tspan class="faint" font-weight="400" dx="10">%s</tspan></text>`+"\n",
		html.EscapeString(regionTitle(c.Region)), html.EscapeString(c.chips()))
	text("faint", svgWidth-svgRight, 24, "end", p.svgSummary(c))
	for i := range uint64(5) {
		bytes := top * i / 4
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", svgLeft, svgWidth-svgRight, y(bytes), y(bytes))
		text("faint", svgLeft-8, int(y(bytes))+4, "end", c.format(bytes))
	}
	span := max(1, p.endNs-p.beginNs)
	axis := newTimeAxis(span, svgTicks)
	for ns := uint64(0); ns <= span; ns += axis.stepNs {
		x := svgLeft + int(float64(ns)/float64(span)*svgPlot)
		fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", x, x, svgAreaTop+svgArea, svgAreaTop+svgArea+4)
		text("faint", x, svgAreaTop+svgArea+18, "middle", axis.label(ns))
	}
	spans := c.Timeline.Spans(p.endNs)
	least := func(s aggregate.Span) uint64 { return s.Min }
	most := func(s aggregate.Span) uint64 { return s.Max }
	fmt.Fprintf(b, "<path class=\"range\" d=\"%s\"/>\n", svgPath(spans, most, y))
	fmt.Fprintf(b, "<path class=\"area\" d=\"%s\"/>\n", svgPath(spans, least, y))
	if c.StaticBytes > 0 {
		fmt.Fprintf(b, "<path class=\"static\" d=\"%s\"/>\n", svgPath(c.StaticTimeline.Spans(p.endNs), least, y))
	}
	if c.CapacityBytes > 0 && c.CapacityBytes <= top {
		fmt.Fprintf(b, `<line class="capacity" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", svgLeft, svgWidth-svgRight, y(c.CapacityBytes), y(c.CapacityBytes))
		text("peak", svgWidth-svgRight, int(y(c.CapacityBytes))-4, "end", "capacity "+c.format(c.CapacityBytes))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", svgLeft, svgWidth-svgRight, svgAreaTop+svgArea, svgAreaTop+svgArea)
	if c.Bytes > 0 {
		p.drawPeak(b, c, float64(span), y(c.Bytes))
	}
}

// drawPeak marks the moment of the peak, and tells what it was made of where the
// pointer rests on it.
func (p *Page) drawPeak(b *strings.Builder, c *chipsPeak, span, y float64) {
	x := svgLeft + float64(c.TimeNs-min(c.TimeNs, p.beginNs))/span*svgPlot
	fmt.Fprintf(b, `<line class="peakline" x1="%.1f" x2="%.1f" y1="%.1f" y2="%d"/>`+"\n", x, x, y, svgAreaTop+svgArea)
	fmt.Fprintf(b, `<circle class="peak" cx="%.1f" cy="%.1f" r="4"><title>%s</title></circle>`+"\n", x, y, html.EscapeString(p.svgTip(c)))
	anchor, dx := "start", 8.0
	if x > svgWidth-svgRight-svgLabelMargin {
		anchor, dx = "end", -8
	}
	fmt.Fprintf(b, `<text class="peak" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x+dx, y-5, anchor, c.format(c.Bytes))
}

// svgScale is the bytes at the top of a panel: the capacity where the peak comes near
// it, and otherwise a round number above the peak.
func svgScale(c *chipsPeak) uint64 {
	if c.CapacityBytes > 0 && c.Bytes >= c.CapacityBytes/2 {
		return max(c.Bytes, c.CapacityBytes) * 21 / 20
	}
	unit := uint64(1)
	for unit*1024 <= c.Bytes {
		unit *= 1024
	}
	for _, step := range []uint64{1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512, 640, 800, 1024} {
		if step*unit > c.Bytes {
			return step * unit
		}
	}
	return max(1, c.Bytes)
}

// svgSummary is what a panel says of its peak.
func (p *Page) svgSummary(c *chipsPeak) string {
	s := fmt.Sprintf("peak %s%s, %s", c.format(c.Bytes), c.share(c.Bytes, c.CapacityBytes), p.moment(max(c.TimeNs, p.beginNs)))
	if c.StaticBytes > 0 {
		s += fmt.Sprintf("; orange: circular and dataflow buffers, %s of it", c.format(c.StaticBytes))
	}
	if e := c.Earlier; e != nil {
		s = fmt.Sprintf("%s earlier; since then ", c.format(e.Bytes)) + s
	}
	return s
}

// svgTip is what a peak was mostly made of.
func (p *Page) svgTip(c *chipsPeak) string {
	lines := []string{p.svgSummary(c)}
	for _, rows := range [][]row{c.rows, c.programs} {
		for i := range rows[:min(len(rows), svgTipHolders)] {
			lines = append(lines, c.format(rows[i].bytes)+"  "+rows[i].key)
		}
	}
	return strings.Join(lines, "\n")
}

// svgPath is the path of an area from the bottom of a panel up to a line with a step
// for each span.
func svgPath(spans []aggregate.Span, of func(aggregate.Span) uint64, y func(uint64) float64) string {
	var b strings.Builder
	step := svgPlot / float64(len(spans))
	fmt.Fprintf(&b, "M%d %d", svgLeft, svgAreaTop+svgArea)
	for i, s := range spans {
		if i > 0 && of(s) == of(spans[i-1]) {
			continue
		}
		fmt.Fprintf(&b, "H%.2fV%.2f", svgLeft+float64(i)*step, y(of(s)))
	}
	fmt.Fprintf(&b, "H%dV%dZ", svgWidth-svgRight, svgAreaTop+svgArea)
	return b.String()
}
