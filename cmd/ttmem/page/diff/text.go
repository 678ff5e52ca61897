package diff

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// columns are the columns of a difference: the change, A, B and buffers. A narrow terminal has no
// room for the last.
var columns = page.Columns{12, 11, 11, 17}

// columnsOf are the columns that have room.
func columnsOf(l page.Layout) page.Columns {
	if l.Width > 0 && l.Width < columns.Width()+2 {
		return columns[:3]
	}
	return columns
}

func (d *Difference) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	if len(d.Totals) > 0 {
		layout.Write(out, 0, page.Bold, d.headline(layout))
	}
	layout.Beside(out, layout.Paint(page.Bold, "A")+" ", page.NoStyle, page.Clean(d.a.String()))
	layout.Beside(out, layout.Paint(page.Bold, "B")+" ", page.NoStyle, page.Clean(d.b.String()))
	if d.note != "" && len(d.Totals) > 0 {
		layout.Write(out, 0, page.Dim, d.note)
	}
	if len(d.Totals) == 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, d.nothing())
		return out.Flush()
	}
	d.writeTotals(out, layout)
	statics, what := false, "  "+d.by
	if d.Totals[0].Device != d.Totals[len(d.Totals)-1].Device {
		what += ", all chips together"
	}
	for i, g := range d.Groups {
		if i == 0 || g.Static != statics {
			statics = g.Static
			fmt.Fprintln(out)
			if statics {
				layout.WriteTitle(out, "", "CBs, DFBs", "  sums over the cores of all cached programs, which use the same space in turn")
			}
			head := head(layout)
			if layout.Width == 0 || page.Width(head+what) <= layout.Width {
				head += what
			}
			fmt.Fprintln(out, layout.Paint(page.Dim, head))
		}
		d.writeGroup(out, layout, g)
	}
	var rest []string
	if d.cutOff > 0 {
		rest = append(rest, fmt.Sprintf("and %s smaller: -n 0 lists all", page.Count(uint64(d.cutOff), "change")))
	}
	if d.Same > 0 && len(d.Groups) > 0 {
		rest = append(rest, isOrAre(d.Same)+" the same in both"+d.moved())
	}
	if rest != nil {
		fmt.Fprintln(out)
	}
	for _, text := range rest {
		layout.Write(out, 0, page.NoStyle, text)
	}
	return out.Flush()
}

// headline returns the line with the largest change.
func (d *Difference) headline(layout page.Layout) string {
	g := d.most
	if g == nil {
		return fmt.Sprintf("Nothing differs by %s: %s the same in both%s.", d.by, isOrAre(d.Same), d.moved())
	}
	text := "the same bytes"
	if g.ChangeBytes != 0 {
		text = formatChange(g.ChangeBytes)
	}
	if g.Region != "" {
		text += " of " + g.Region
	}
	head := fmt.Sprintf("Largest change: %s, %s %s: ", text, buffers(layout, g.A, g.B), page.Plural(g.B.Buffers, "buffer"))
	key := g.Key
	if line, _, found := strings.Cut(key, " · "); found && layout.Width > 0 && page.Width(head+key) > layout.Width {
		key = line // the operation is in the list
	}
	return head + layout.Separated(key)
}

// moved says how many of the same groups have another line.
func (d *Difference) moved() string {
	if d.Moved == 0 {
		return ""
	}
	return fmt.Sprintf(", %s at another line", page.Grouped(d.Moved))
}

func isOrAre(n int) string {
	if n == 1 {
		return "1 is"
	}
	return page.Grouped(n) + " are"
}

// nothing says that there is nothing to compare, and which side has other allocations.
func (d *Difference) nothing() string {
	if len(d.a.Parts.List)+len(d.b.Parts.List) > 0 {
		return "No matching allocations in either recording. A has " + d.a.has() + ", B " + d.b.has() + "."
	}
	text := "Nothing is allocated on either side."
	if d.a.Moment == "left" && d.b.Moment == "left" {
		text += " --at peak compares their peaks."
	}
	return text
}

// has returns the possible selections of a side: "DRAM, L1 of PID 7".
func (s *Side) has() string {
	var regions, pids []string
	for _, r := range alloc.Regions {
		if slices.ContainsFunc(s.Parts.List, func(p analyze.Part) bool { return p.Region == r }) {
			regions = append(regions, r.String())
		}
	}
	if regions == nil {
		return "nothing"
	}
	for i := range s.Parts.List {
		if pid := fmt.Sprint(s.Parts.List[i].PID); !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return strings.Join(regions, ", ") + " of PID " + page.Some(pids, "process")
}

// head is the head of the columns that writeAmounts writes.
func head(layout page.Layout) string { return columnsOf(layout).Line("change", "A", "B", "buffers") }

// shownUnlike is how many chips with different amounts are shown.
const shownUnlike = 4

// writeTotals writes a line for each region of each chip. Chips with the same amounts share
// one. If there are many others, those with the largest changes are shown.
func (d *Difference) writeTotals(out *bufio.Writer, layout page.Layout) {
	chips := page.Alike(d.Totals, func(a, b Total) bool { return a.Device == b.Device })
	fmt.Fprintln(out)
	fmt.Fprintln(out, layout.Paint(page.Dim, head(layout)))
	unlike := page.Alike(chips, sameTotals)
	shown := len(unlike)
	if shown > shownUnlike+1 {
		shown = shownUnlike
		slices.SortStableFunc(unlike, func(a, b [][]Total) int { return cmp.Compare(change(b[0]), change(a[0])) })
	}
	for _, same := range unlike[:shown] {
		ids := page.Each(same, func(totals []Total) int { return totals[0].Device })
		fmt.Fprintln(out, layout.Paint(page.Bold, page.EachChip(ids)))
		for _, t := range same[0] {
			name := t.region.String()
			if t.region == event.CB {
				name = "CBs, DFBs, of all programs"
			}
			writeAmounts(out, layout, t.A, t.B, name)
		}
	}
	if more := slices.Concat(unlike[shown:]...); len(more) > 0 {
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("and %s with smaller changes: --json lists all", page.Count(uint64(len(more)), "chip")))
	}
}

// change is the largest change of a region of a chip; circular buffers do not count.
func change(totals []Total) (most int64) {
	for _, t := range totals {
		if t.region != event.CB {
			most = max(most, t.ChangeBytes, -t.ChangeBytes)
		}
	}
	return most
}

func sameTotals(a, b []Total) bool {
	return slices.EqualFunc(a, b, func(a, b Total) bool { return a.region == b.region && a.A == b.A && a.B == b.B })
}

// buffers returns the number of buffers in both, or in A and in B.
func buffers(layout page.Layout, a, b Amount) string {
	if a.Buffers == b.Buffers {
		return fmt.Sprint(b.Buffers)
	}
	return fmt.Sprintf("%d%s%d", a.Buffers, layout.Pick(" → ", " > "), b.Buffers)
}

// writeAmounts writes two amounts and their name.
func writeAmounts(out *bufio.Writer, layout page.Layout, a, b Amount, title string) {
	style := page.NoStyle
	switch {
	case b.Bytes > a.Bytes:
		style = page.Red
	case b.Bytes < a.Bytes:
		style = page.Green
	}
	count := buffers(layout, a, b)
	c := columnsOf(layout)
	line := layout.Paint(style, c[:1].Line(formatChange(int64(b.Bytes)-int64(a.Bytes)))) +
		c[1:].Line(page.Bytes(a.Bytes), page.Bytes(b.Bytes), count) + "  "
	if len(c) == len(columns) {
		layout.Whole(out, line, page.NoStyle, title)
		return
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
	layout.Write(out, page.NameIndent, page.NoStyle, count+" "+page.Plural(b.Buffers, "buffer")+", "+title)
}

// formatChange writes a change of bytes with its sign.
func formatChange(n int64) string {
	switch {
	case n > 0:
		return "+" + page.Bytes(uint64(n))
	case n < 0:
		return "-" + page.Bytes(uint64(-n))
	}
	return "="
}

func (d *Difference) writeGroup(out *bufio.Writer, layout page.Layout, g *Group) {
	title := layout.Separated(g.Key)
	if g.Region != "" && g.Region != event.DRAM.String() && !g.Static {
		title += ", " + g.Region
	}
	if g.ALine > 0 {
		title += fmt.Sprintf(" (line %d in A)", g.ALine)
	}
	writeAmounts(out, layout, g.A, g.B, title)
	layout.WriteCallers(out, page.NameIndent+2, g.Callers)
}
