package main

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
)

// The columns of a leak, which its name follows.
const (
	leakCountColumns = 8
	leakAgeColumns   = 11
	leakColumns      = page.SizeColumns + leakCountColumns + leakAgeColumns
	// leakIndent is how far what is below a leak is indented.
	leakIndent = 6
)

func (p *leakPage) writeText(out *bufio.Writer, layout page.Layout) {
	layout.Write(out, 0, page.Bold, p.headline())
	switch {
	case len(p.leaks) == 0:
	case p.o.by != "stack":
		p.writeGroups(out, layout)
	default:
		p.writeLeaks(out, layout, p.leaks)
	}
	var rest []string
	if len(p.steady) > 0 {
		title := "Live but stable"
		if !p.whole() {
			title = "Replaced others"
		}
		sum := sumOf(p.steady)
		rest = append(rest, fmt.Sprintf("%s: %s, %s, from %s.", title,
			page.Count(sum.Count, "buffer"), page.Bytes(sum.Bytes), plural(sum.Stacks, "call site")))
	}
	if len(p.stable) > 0 {
		p.writeSection(out, layout, "Live but stable", p.whyStable(), p.stable)
		p.writeRows(out, layout, p.stable, true)
	}
	for _, group := range retainedGroups(p.retained) {
		p.writeSection(out, layout, "Retained by the runtime: "+group[0].By.Name, group[0].By.Why, group)
		p.writeRows(out, layout, p.merged(group), false)
	}
	if p.o.suppress != "" {
		sum := sumOf(p.suppressed)
		rest = append(rest, fmt.Sprintf("Suppressed by %s: %s, %s, from %s.", p.o.suppress,
			page.Count(sum.Count, "buffer"), page.Bytes(sum.Bytes), plural(sum.Stacks, "call site")))
	}
	if len(rest) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range rest {
		p.writeWrapped(out, layout, 0, page.Dim, text)
	}
}

// whyStable says why what survived between marks is no leak.
func (p *leakPage) whyStable() string {
	if p.earlier {
		return "allocated after the mark and still live; it may have replaced other buffers"
	}
	return "allocated between the marks and still live, but not growing to the last"
}

// writeWrapped writes a text in lines that are not too long to read, whatever takes them.
func (p *leakPage) writeWrapped(out *bufio.Writer, layout page.Layout, indent int, st page.Style, text string) {
	for _, line := range page.Fold(text, layout.Columns()-indent) {
		fmt.Fprintln(out, page.Left("", indent)+layout.Paint(st, line))
	}
}

func plural(n int, noun string) string { return page.Count(uint64(n), noun) }

// headline says what was found, and between what.
func (p *leakPage) headline() string {
	var where string
	if len(p.marks) > 0 {
		from, to := p.markText(p.marks[0], p.from, p.fromNth, "the beginning"), p.markText(p.marks[len(p.marks)-1], p.to, p.toNth, "the end")
		if from == to {
			from, to = "the first "+from, "the last"
		}
		span := page.Seconds(p.marks[len(p.marks)-1].TimeNs - p.marks[0].TimeNs)
		if n := len(p.marks) - 1; n > 1 {
			span = fmt.Sprintf("%d intervals, %s", n, span)
		}
		where = fmt.Sprintf(" from %s to %s (%s)", from, to, span)
	}
	if p.o.watchedNs > 0 {
		where += ", watched for " + page.Seconds(p.o.watchedNs)
	}
	sum := p.leaked()
	switch {
	case sum.Count > 0:
		return fmt.Sprintf("%s leaked%s: %s from %s", page.Bytes(sum.Bytes), where,
			page.Count(sum.Count, "buffer"), plural(sum.Stacks, "call site"))
	case p.byRun() && p.allocated < analyze.LeastSurvivors:
		return "Not enough allocations to judge" + where + ": " + allocatedText(p.allocated)
	case p.byRun() || len(p.stable)+len(p.steady) > 0:
		return "No leaks" + where + ": nothing grew to the end."
	}
	return "No leaks" + where + ": nothing survived."
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

// markText names a mark, with the number of those of its name where it was asked for.
func (p *leakPage) markText(m leakMark, asked string, nth int, none string) string {
	switch {
	case m.Name == "":
		return none
	case asked == "":
		return fmt.Sprintf("%q", m.Name)
	}
	return fmt.Sprintf("%q", markText(m.Name, nth))
}

// writeSection writes the head of a list of what is no leak: a title, and why.
func (p *leakPage) writeSection(out *bufio.Writer, layout page.Layout, title, why string, list []leak) {
	sum := sumOf(list)
	fmt.Fprintln(out)
	layout.WriteTitle(out, "", title, fmt.Sprintf("  %s, %s", page.Count(sum.Count, "buffer"), page.Bytes(sum.Bytes)))
	p.writeWrapped(out, layout, 2, page.Dim, why)
}

// merged are the rows of which no calls are listed, those with the same title as one.
func (p *leakPage) merged(list []leak) (rows []leak) {
	index := make(map[string]int)
	for _, l := range list {
		key := p.title(&l, "") + p.place(&l)
		i, ok := index[key]
		if !ok {
			index[key] = len(rows)
			rows = append(rows, l)
			continue
		}
		rows[i].Count += l.Count
		rows[i].Bytes += l.Bytes
		rows[i].AgeNs = max(rows[i].AgeNs, l.AgeNs)
	}
	slices.SortStableFunc(rows, func(a, b leak) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return rows
}

// writeLeaks writes each leak with its verdict and its calls.
func (p *leakPage) writeLeaks(out *bufio.Writer, layout page.Layout, list []leak) {
	fmt.Fprintln(out)
	p.writeRows(out, layout, list, true)
}

// keptRows is how many rows of what is retained are listed.
const keptRows = 5

func (p *leakPage) writeRows(out *bufio.Writer, layout page.Layout, list []leak, whole bool) {
	limit := p.o.n
	if !whole && (limit == 0 || limit > keptRows) {
		limit = keptRows
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, page.Right("bytes", page.SizeColumns)+page.Right("buffers", leakCountColumns)+page.Right("oldest", leakAgeColumns)))
	for i := range list {
		if limit > 0 && i == limit {
			more := fmt.Sprintf("and %s more", page.Grouped(len(list)-i))
			if whole {
				more += ": -n 0 lists all"
			}
			fmt.Fprintln(out, layout.Paint(page.Dim, page.Left("", leakIndent)+more))
			break
		}
		l := &list[i]
		line := page.Right(page.Bytes(l.Bytes), page.SizeColumns) + page.Right(fmt.Sprint(l.Count), leakCountColumns) + page.Right(page.Seconds(l.AgeNs), leakAgeColumns) + "  "
		title := p.title(l, layout.Pick(" · ", " - ")) + p.place(l)
		if layout.Width > 0 && page.Width(line)+page.Width(title) > layout.Width {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			layout.Write(out, leakIndent, page.Green, title)
		} else {
			fmt.Fprintln(out, line+layout.Paint(page.Green, title))
		}
		if !whole {
			continue
		}
		st := page.NoStyle
		if l.Class == analyze.Leaked {
			st = page.Yellow
		}
		p.writeWrapped(out, layout, leakIndent, st, p.verdict(l))
		for _, call := range page.Callers(l.Verdict.Stack.Frames()) {
			layout.Write(out, leakIndent+2, page.Dim, call)
		}
	}
}

// place is where a leak is, where that is not DRAM of the only chip and process.
func (p *leakPage) place(l *leak) (text string) {
	if name := l.Region.String(); name != "DRAM" {
		text += ", " + name
	}
	if len(l.Devices) > 1 {
		text += ", " + page.Chips(l.Devices)
	}
	if len(p.list.Snap.Processes) > 1 {
		text += fmt.Sprintf(", PID %d", l.PID)
	}
	return text
}

func (p *leakPage) writeGroups(out *bufio.Writer, layout page.Layout) {
	groups := p.groups()
	fmt.Fprintln(out)
	fmt.Fprintln(out, layout.Paint(page.Dim, page.Right("bytes", page.SizeColumns)+page.Right("buffers", leakCountColumns)+"  "+p.o.by))
	for i, g := range groups {
		if p.o.n > 0 && i == p.o.n {
			fmt.Fprintln(out, layout.Paint(page.Dim, fmt.Sprintf("and %s more: -n 0 lists all", page.Grouped(len(groups)-i))))
			break
		}
		layout.Beside(out, page.Right(page.Bytes(g.Bytes), page.SizeColumns)+page.Right(fmt.Sprint(g.Count), leakCountColumns)+"  ", page.NoStyle, layout.Separated(g.Key))
	}
}

// retainedGroups are what is retained, by what retains it; the most bytes first within
// each.
func retainedGroups(retained []leak) (groups [][]leak) {
	index := make(map[*name.Retained]int)
	for _, l := range retained {
		i, ok := index[l.By]
		if !ok {
			i = len(groups)
			index[l.By] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}
