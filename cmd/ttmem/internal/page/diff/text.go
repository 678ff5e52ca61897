package diff

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// columns are the columns of a difference.
func columns(layout page.Layout) table.Columns {
	list := table.Columns{
		table.Text("change", 12, func(r *alloc.Row) string { return formatChange(Change(r)) }), table.Text("A", 11, table.AsBytes(inA, page.Bytes)),
		table.Text("B", 11, table.AsBytes(inB, page.Bytes)), table.Text("buffers", 17, func(r *alloc.Row) string { return buffers(layout, r) }).IfRoom(),
	}
	list[0].Style = func(r *alloc.Row) page.Style {
		switch n := Change(r); {
		case n > 0:
			return page.Red
		case n < 0:
			return page.Green
		}
		return page.NoStyle
	}
	return list
}

// list is rows with a title.
func list(layout page.Layout, rows []*alloc.Row, title func(*alloc.Row) string) *table.List {
	l := &table.List{Columns: columns(layout), Rows: rows, Title: title, Whole: true}
	if l.IsNarrow(layout) {
		l.Title = func(r *alloc.Row) string {
			return buffers(layout, r) + " " + page.Plural(r.Amounts[inB].Count, "buffer") + ", " + title(r)
		}
	}
	return l
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
	what := d.by
	if d.Totals[0].Devices[0] != d.Totals[len(d.Totals)-1].Devices[0] {
		what += ", all chips together"
	}
	for _, groups := range page.Alike(d.Groups, func(a, b *alloc.Row) bool { return isStatic(a) == isStatic(b) }) {
		fmt.Fprintln(out)
		if isStatic(groups[0]) {
			layout.WriteTitle(out, "", "CBs, DFBs", "  sums over the cores of all cached programs, which use the same space in turn")
		}
		one := list(layout, groups, d.title)
		one.Head = what
		one.Write(out, layout)
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
	if n := Change(g); n != 0 {
		text = formatChange(n)
	}
	if d.by == "stack" {
		text += " of " + g.Region.String()
	}
	head := fmt.Sprintf("Largest change: %s, %s %s: ", text, buffers(layout, g), page.Plural(g.Amounts[inB].Count, "buffer"))
	key := g.Text
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

// shownUnlike is how many chips with different amounts are shown.
const shownUnlike = 4

// writeTotals writes a line for each region of each chip. Chips with the same amounts share
// one. If there are many others, those with the largest changes are shown.
func (d *Difference) writeTotals(out *bufio.Writer, layout page.Layout) {
	chips := page.Alike(d.Totals, func(a, b *alloc.Row) bool { return a.Devices[0] == b.Devices[0] })
	fmt.Fprintln(out)
	list(layout, nil, nil).WriteHead(out, layout)
	unlike := page.Alike(chips, sameTotals)
	shown := len(unlike)
	if shown > shownUnlike+1 {
		shown = shownUnlike
		slices.SortStableFunc(unlike, func(a, b [][]*alloc.Row) int { return cmp.Compare(largestChange(b[0]), largestChange(a[0])) })
	}
	for _, same := range unlike[:shown] {
		ids := page.Each(same, func(totals []*alloc.Row) int { return totals[0].Devices[0] })
		fmt.Fprintln(out, layout.Paint(page.Bold, page.EachChip(ids)))
		list(layout, same[0], func(r *alloc.Row) string {
			if isStatic(r) {
				return "CBs, DFBs, of all programs"
			}
			return r.Region.String()
		}).WriteRows(out, layout)
	}
	if more := slices.Concat(unlike[shown:]...); len(more) > 0 {
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("and %s with smaller changes: --json lists all", page.Count(uint64(len(more)), "chip")))
	}
}

// largestChange is the largest change of a region of a chip; circular buffers do not count.
func largestChange(totals []*alloc.Row) (most int64) {
	for _, t := range totals {
		if !isStatic(t) {
			most = max(most, Change(t), -Change(t))
		}
	}
	return most
}

func sameTotals(a, b []*alloc.Row) bool {
	return slices.EqualFunc(a, b, func(a, b *alloc.Row) bool { return a.Region == b.Region && slices.Equal(a.Amounts, b.Amounts) })
}

// buffers returns the number of buffers in both, or in A and in B.
func buffers(layout page.Layout, r *alloc.Row) string {
	if a, b := r.Amounts[inA].Count, r.Amounts[inB].Count; a != b {
		return fmt.Sprintf("%d%s%d", a, layout.Pick(" → ", " > "), b)
	}
	return fmt.Sprint(r.Amounts[inB].Count)
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

// title is the name of a group.
func (d *Difference) title(g *alloc.Row) string {
	title := g.Text
	if d.by == "stack" && g.Region != event.DRAM && !isStatic(g) {
		title += ", " + g.Region.String()
	}
	if g.ALine > 0 {
		title += fmt.Sprintf(" (line %d in A)", g.ALine)
	}
	return title
}
