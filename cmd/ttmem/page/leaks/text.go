package leaks

import (
	"bufio"
	"cmp"
	"fmt"
	"io"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
)

// The columns of a leak, and of a group of leaks.
var (
	columns      = page.Columns{page.SizeColumns, 8, 11}
	groupColumns = columns[:2]
)

// WriteText writes the page.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	if c := analyze.LargestContainer(page.Each(p.leaks, func(l leak) []analyze.Container { return l.Containers })); c != nil {
		layout.Sized().Write(out, 0, page.Bold, alloc.Growth(layout.Painter, c))
	}
	layout.Write(out, 0, page.Bold, p.headline())
	switch {
	case len(p.leaks) == 0:
	case p.By != "stack":
		p.writeGroups(out, layout)
	default:
		fmt.Fprintln(out)
		p.writeRows(out, layout, p.folded(p.leaks, true, p.Lines), true)
	}
	if len(p.undecided) > 0 {
		p.writeSection(out, layout, "Growing, too few to judge",
			fmt.Sprintf("allocated up to the end and not freed; a leak has at least %d buffers", analyze.LeastSurvivors), p.undecided)
		p.writeRows(out, layout, p.folded(p.undecided, true, p.Lines), true)
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
		p.writeRows(out, layout, p.folded(p.stable, true, p.Lines), true)
	}
	for _, group := range page.Alike(p.retained, func(a, b leak) bool { return a.By == b.By }) {
		p.writeSection(out, layout, "Retained by the runtime: "+group[0].By.Name, group[0].By.Why, group)
		p.writeRows(out, layout, p.folded(group, false, false), false)
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
	if p.whole() {
		return "allocated while ttmem watched and still live, but not growing to the end"
	}
	return "allocated between the marks and still live, but not growing to the last"
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
		return "No leaks found" + where + ", but " + p.Undecided()
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
func (p *Page) writeSection(out *bufio.Writer, layout page.Layout, title, why string, list []leak) {
	sum := sumOf(list)
	fmt.Fprintln(out)
	layout.WriteTitle(out, "", title, fmt.Sprintf("  %s, %s", page.Count(sum.Count, "buffer"), page.Bytes(sum.Bytes)))
	layout.Sized().Write(out, 2, page.Dim, why)
}

// retainedRows is the maximum number of call sites listed for memory that the runtime retains.
const retainedRows = 5

// writeRows lists call sites. A whole list has verdicts and callers, and its length depends on
// -n.
func (p *Page) writeRows(out *bufio.Writer, layout page.Layout, list []*leak, whole bool) {
	limit := p.Limit
	if !whole && (limit == 0 || limit > retainedRows) {
		limit = retainedRows
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, columns.Line("bytes", "buffers", "oldest")))
	shown, omitted := page.First(list, limit)
	for _, l := range shown {
		line := columns.Line(page.Bytes(l.Bytes), fmt.Sprint(l.Count), page.Seconds(l.AgeNs)) + "  "
		layout.Whole(out, line, page.Green, layout.Separated(l.Text)+p.place(l))
		if !whole {
			continue
		}
		st := page.NoStyle
		if l.Verdict.Class == analyze.Leaked || l.Verdict.Class == analyze.Undecided {
			st = page.Yellow
		}
		layout.Sized().Write(out, page.NameIndent, st, p.verdict(l))
		p.writeContainers(out, layout.Sized(), l)
		for _, call := range l.Callers {
			layout.Write(out, page.NameIndent+2, page.Dim, call)
		}
	}
	if omitted > 0 {
		more := fmt.Sprintf("and %s more", page.Grouped(omitted))
		if whole {
			more += ": -n 0 lists all"
		}
		fmt.Fprintln(out, layout.Paint(page.Dim, page.Blank(page.NameIndent)+more))
	}
}

// shownContainers is the maximum number of containers of a leak.
const shownContainers = 3

// writeContainers says what holds a leak.
func (p *Page) writeContainers(out *bufio.Writer, layout page.Layout, l *leak) {
	shown, omitted := page.First(l.Containers, shownContainers)
	for i := range shown {
		layout.Write(out, page.NameIndent, page.Yellow, "held by "+alloc.Growth(layout.Painter, &shown[i]))
	}
	if omitted > 0 {
		layout.Write(out, page.NameIndent, page.Dim, fmt.Sprintf("and by %s more, with --by owner", page.Grouped(omitted)))
	}
}

// place returns the place of a leak; "" for DRAM of the only chip and process.
func (p *Page) place(l *leak) (text string) {
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

func (p *Page) writeGroups(out *bufio.Writer, layout page.Layout) {
	groups := p.groups()
	fmt.Fprintln(out)
	fmt.Fprintln(out, layout.Paint(page.Dim, groupColumns.Line("bytes", "buffers")+"  "+p.By))
	shown, omitted := page.First(groups, p.Limit)
	for _, g := range shown {
		layout.Beside(out, groupColumns.Line(page.Bytes(g.Bytes), fmt.Sprint(g.Count))+"  ", page.NoStyle, layout.Separated(g.Key))
	}
	if omitted > 0 {
		fmt.Fprintln(out, layout.Paint(page.Dim, fmt.Sprintf("and %s more: -n 0 lists all", page.Grouped(omitted))))
	}
}
