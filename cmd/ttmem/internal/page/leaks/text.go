package leaks

import (
	"bufio"
	"cmp"
	"fmt"
	"io"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// The columns of leaks, and of their groups.
var (
	columns = table.Columns{
		table.Text("bytes", page.SizeColumns, table.AsBytes(0, page.Bytes)), table.Text("buffers", 8, table.AsCount(0)),
		table.Text("oldest", 11, func(r *alloc.Row) string { return page.Seconds(r.OldestNs) }),
	}
	groupColumns = table.Columns{
		table.Key, table.Bytes("bytes", "bytes of the leaks", 0).Shown("bytes", page.SizeColumns, table.AsBytes(0, page.Bytes)),
		table.Count("count", "number of leaked buffers", 0).Shown("buffers", 8, table.AsCount(0)),
		table.Field("growing", "always true", func(*alloc.Row) bool { return true }),
	}
)

// WriteText writes the page.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	if c := analyze.LargestContainer(page.Each(p.leaks, func(l *alloc.Row) []analyze.Container { return l.Verdict.Containers })); c != nil {
		layout.Sized().Write(out, 0, page.Bold, alloc.Growth(layout.Painter, c))
	}
	layout.Write(out, 0, page.Bold, p.headline())
	for _, text := range p.hostGrowth() {
		layout.Sized().Write(out, 0, page.Yellow, text)
	}
	switch {
	case len(p.leaks) == 0:
	case p.By != "stack":
		fmt.Fprintln(out)
		(&table.List{Columns: groupColumns, Rows: p.groups(), Limit: p.Limit, Head: p.By}).Write(out, layout)
	default:
		fmt.Fprintln(out)
		p.writeRows(out, layout, p.leaks)
	}
	if len(p.undecided) > 0 {
		p.writeSection(out, layout, "Growing, too few to judge",
			fmt.Sprintf("allocated up to the end and not freed; a leak has at least %d buffers", analyze.LeastSurvivors), p.undecided)
		p.writeRows(out, layout, p.undecided)
	}
	var rest []string
	if len(p.steady) > 0 {
		title := "Live but stable"
		if !p.whole() {
			title = "Replaced others"
		} else if p.Allocated < analyze.LeastSurvivors {
			title = "Live"
		}
		rest = append(rest, title+": "+sumOf(p.steady).String())
	}
	if len(p.stable) > 0 {
		p.writeSection(out, layout, "Live but stable", p.whyStable(), p.stable)
		p.writeRows(out, layout, p.stable)
	}
	for _, group := range page.Alike(p.retained, func(a, b *alloc.Row) bool { return a.Verdict.By == b.Verdict.By }) {
		p.writeSection(out, layout, "Retained by the runtime: "+group[0].Verdict.By.Name, group[0].Verdict.By.Why, group)
		p.writeRetained(out, layout, group)
	}
	if p.Suppress != "" {
		rest = append(rest, "Suppressed by "+p.Suppress+": "+sumOf(p.suppressed).String())
	}
	if len(rest) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range rest {
		layout.Sized().Write(out, 0, page.Dim, text)
	}
	return out.Flush()
}

// String is "2 buffers, 4.0 KiB, from 1 call site."
func (s sum) String() string {
	return fmt.Sprintf("%s, %s, from %s.", page.Count(s.Count, "buffer"), page.Bytes(s.Bytes), page.Count(uint64(s.Stacks), "call site"))
}

// whyStable says why buffers that survived between marks are not leaks.
func (p *Page) whyStable() string {
	if p.Within != "" {
		return "allocated in the calls and live at the end of the last, but no longer growing there"
	}
	if p.whole() {
		return "allocated while ttmem watched and still live, but no longer growing at the end"
	}
	return "allocated between the marks and still live, but no longer growing at the last"
}

// headline says how much leaked, and between which marks.
func (p *Page) headline() string {
	var where string
	if n := len(p.Marks) - 1; n > 0 {
		from, to := markText(p.Marks[0], p.From, "the beginning"), markText(p.Marks[n], p.To, "the end")
		if from == to {
			from, to = "the first "+from, "the last"
		}
		span := page.Seconds(p.Marks[n].TimeNs - p.Marks[0].TimeNs)
		if n > 1 {
			span = fmt.Sprintf("%d intervals, %s", n, span)
		}
		where = fmt.Sprintf(" from %s to %s (%s)", from, to, span)
		if p.Within != "" {
			where = fmt.Sprintf(" within %s (%s, %s)", page.Clean(p.Within), page.Count(uint64(n), "call"), page.Seconds(p.Marks[n].TimeNs-p.Marks[0].TimeNs))
		}
	}
	if p.WatchedNs > 0 {
		where += ", watched for " + page.Seconds(p.WatchedNs)
	}
	sum := sumOf(p.leaks)
	switch {
	case sum.Count > 0:
		return fmt.Sprintf("%s leaked%s: %s from %s", page.Bytes(sum.Bytes), where,
			page.Count(sum.Count, "buffer"), page.Count(uint64(sum.Stacks), "call site"))
	case p.whole() && p.Allocated < analyze.LeastSurvivors:
		return "Not enough allocations to judge" + where + ": " + allocatedText(p.Allocated)
	case len(p.undecided) > 0:
		return "No leaks found" + where + "; " + p.Undecided()
	case p.whole() || len(p.stable)+len(p.steady) > 0:
		return "No leaks" + where + ": nothing grew to " + p.endText() + "."
	}
	return "No leaks" + where + ": nothing survived."
}

// endText says where the recording ends.
func (p *Page) endText() string {
	if p.Cut {
		return "where the recording is cut short"
	}
	return "the end"
}

func allocatedText(n uint64) string {
	switch n {
	case 0:
		return "no buffer was allocated."
	case 1:
		return "1 buffer was allocated."
	}
	return fmt.Sprintf("%d buffers were allocated.", n)
}

// markText names a mark, as the user named it if possible.
func markText(m Mark, named, none string) string {
	if m.Name == "" {
		return none
	}
	return fmt.Sprintf("%q", cmp.Or(named, m.Name))
}

// writeSection writes the head of a list of buffers that did not leak: a title and the
// reason.
func (p *Page) writeSection(out *bufio.Writer, layout page.Layout, title, why string, list []*alloc.Row) {
	sum := sumOf(list)
	fmt.Fprintln(out)
	layout.WriteTitle(out, "", title, fmt.Sprintf("  %s, %s", page.Count(sum.Count, "buffer"), page.Bytes(sum.Bytes)))
	layout.Sized().Write(out, 2, page.Dim, why)
}

// writeRows lists call sites with verdicts and callers.
func (p *Page) writeRows(out *bufio.Writer, layout page.Layout, list []*alloc.Row) {
	(&table.List{
		Columns: columns, Rows: p.folded(list, p.Lines), Limit: p.Limit, Title: p.title, Whole: true,
		Style: func(*alloc.Row) page.Style { return page.Green },
		Below: func(_ int, l *alloc.Row) {
			style := page.NoStyle
			if l.Verdict.Class == analyze.Leaked || l.Verdict.Class == analyze.Undecided {
				style = page.Yellow
			}
			layout.Sized().Write(out, page.NameIndent, style, p.verdict(l))
			p.writeContainers(out, layout.Sized(), l.Verdict)
		},
	}).Write(out, layout)
}

// retainedRows is the maximum number of rows for memory that the runtime retains.
const retainedRows = 5

// writeRetained lists what the runtime retains, by name.
func (p *Page) writeRetained(out *bufio.Writer, layout page.Layout, list []*alloc.Row) {
	limit := retainedRows
	if p.Limit > 0 {
		limit = min(limit, p.Limit)
	}
	sums := table.Table{Names: p.names}
	for _, l := range list {
		key := alloc.Key{Text: p.names.Name(l), Apart: p.place(l)} // the title of the list has the class
		sums.AddAs(l, key, alloc.Look{Key: key})
	}
	(&table.List{
		Columns: columns, Rows: sums.Rows(false, nil), Limit: limit, Title: p.title, Whole: true, Style: func(*alloc.Row) page.Style { return page.Green },
	}).Write(out, layout)
}

// title is the name and the place of a row.
func (p *Page) title(l *alloc.Row) string { return l.Text + p.place(l) }

// shownContainers is the maximum number of containers of a leak.
const shownContainers = 3

// writeContainers says what holds a leak.
func (p *Page) writeContainers(out *bufio.Writer, layout page.Layout, l *analyze.Verdict) {
	shown, omitted := page.First(l.Containers, shownContainers)
	for i := range shown {
		layout.Write(out, page.NameIndent, page.Yellow, "held by "+alloc.Growth(layout.Painter, &shown[i]))
	}
	if omitted > 0 {
		layout.Write(out, page.NameIndent, page.Dim, fmt.Sprintf("and by %s more, with --by owner", page.Grouped(omitted)))
	}
}

// place returns the place of a leak; "" for DRAM of the only chip and process.
func (p *Page) place(l *alloc.Row) (text string) {
	if name := l.Region.String(); name != "DRAM" {
		text += ", " + name
	}
	if len(l.Devices) > 1 {
		text += ", " + page.Chips(l.Devices)
	}
	if len(p.names.Snap.Processes) > 1 {
		text += ", " + p.names.Users().PID(l.PID)
	}
	return text
}
