package diff

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// The columns of a difference; a name follows.
const (
	changeColumns  = 12
	amountColumns  = 11
	buffersColumns = 17
	amountsColumns = changeColumns + 2*amountColumns + buffersColumns + 2
)

func (d *Difference) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.Beside(out, layout.Paint(page.Bold, "A")+" ", page.NoStyle, page.Clean(d.a.String()))
	layout.Beside(out, layout.Paint(page.Bold, "B")+" ", page.NoStyle, page.Clean(d.b.String()))
	if len(d.Totals) == 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, d.nothing())
		return out.Flush()
	}
	d.writeTotals(out, layout)
	if d.Moved > 0 {
		text := page.Count(uint64(d.Moved), "stack") + " of A may be in B with other line numbers, as after an edit: --ignore-lines compares without them"
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, text)
	}
	statics, what := false, "  "+d.by
	if d.Totals[0].Device != d.Totals[len(d.Totals)-1].Device {
		what += ", all chips together"
	}
	for i, g := range d.Groups {
		if i == 0 || g.Static != statics {
			statics = g.Static
			fmt.Fprintln(out)
			if statics {
				layout.WriteTitle(out, "", "CBs, DFBs", "  of all programs that are cached: they use the same space in turn")
			}
			head := head(layout)
			if layout.Width == 0 || page.Width(head+what) <= layout.Width {
				head += what
			}
			fmt.Fprintln(out, layout.Paint(page.Dim, head))
		}
		d.writeGroup(out, layout, g)
	}
	switch {
	case len(d.Groups) == 0:
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("Nothing differs by %s: %s the same in both.", d.by, isOrAre(d.Same)))
	case d.cutOff > 0:
		fmt.Fprintf(out, "\nand %s more: -n 0 lists all\n", page.Grouped(d.cutOff))
	}
	if d.Same > 0 && len(d.Groups) > 0 {
		fmt.Fprintf(out, "\n%s the same in both\n", isOrAre(d.Same))
	}
	return out.Flush()
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
	if d.a.Unfreed && d.b.Unfreed {
		text += " --at peak compares their peaks."
	}
	return text
}

// has is what a side has to select: "DRAM, L1 of PID 7".
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

// head is the head of the columns that amounts writes.
func head(layout page.Layout) string {
	head := page.Right("change", changeColumns) + page.Right("A", amountColumns) + page.Right("B", amountColumns)
	if fewAmounts(layout) {
		return head
	}
	return head + page.Right("buffers", buffersColumns)
}

// fewAmounts reports whether there is no room for numbers of buffers beside the amounts.
func fewAmounts(l page.Layout) bool { return l.Width > 0 && l.Width < amountsColumns }

// writeTotals writes a line for each region of each chip. Chips with the same amounts share
// one.
func (d *Difference) writeTotals(out *bufio.Writer, layout page.Layout) {
	type chip struct {
		ids    []int
		totals []Total
	}
	var chips []chip
	for i := 0; i < len(d.Totals); {
		j := i
		for j < len(d.Totals) && d.Totals[j].Device == d.Totals[i].Device {
			j++
		}
		this := d.Totals[i:j]
		found := false
		for k := range chips {
			if sameTotals(chips[k].totals, this) {
				chips[k].ids, found = append(chips[k].ids, this[0].Device), true
				break
			}
		}
		if !found {
			chips = append(chips, chip{[]int{this[0].Device}, this})
		}
		i = j
	}
	for i, c := range chips {
		title := page.Chips(c.ids)
		if len(c.ids) > 1 {
			title += " (each)"
		}
		if i == 0 {
			fmt.Fprintln(out)
			fmt.Fprintln(out, layout.Paint(page.Dim, head(layout)))
		}
		fmt.Fprintln(out, layout.Paint(page.Bold, title))
		for _, t := range c.totals {
			name := t.region.String()
			if t.region == event.CB {
				name = "CBs, DFBs, of all programs"
			}
			writeAmounts(out, layout, t.A, t.B, name)
		}
	}
}

func sameTotals(a, b []Total) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].region != b[i].region || a[i].A != b[i].A || a[i].B != b[i].B {
			return false
		}
	}
	return true
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
	buffers, noun := fmt.Sprint(b.Buffers), " buffers"
	if b.Buffers == 1 {
		noun = " buffer"
	}
	if a.Buffers != b.Buffers {
		buffers = fmt.Sprintf("%d%s%d", a.Buffers, layout.Pick(" → ", " > "), b.Buffers)
	}
	columns := layout.Paint(style, page.Right(formatChange(int64(b.Bytes)-int64(a.Bytes)), changeColumns)) +
		page.Right(page.Bytes(a.Bytes), amountColumns) + page.Right(page.Bytes(b.Bytes), amountColumns)
	below := fewAmounts(layout)
	if below {
		title = buffers + noun + ", " + title
	} else {
		columns += page.Right(buffers, buffersColumns) + "  "
		below = layout.Width > 0 && amountsColumns+page.Width(title) > layout.Width
	}
	if !below {
		fmt.Fprintln(out, columns+title)
		return
	}
	fmt.Fprintln(out, strings.TrimRight(columns, " "))
	layout.Write(out, page.NameIndent, page.NoStyle, title)
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
	writeAmounts(out, layout, g.A, g.B, layout.Separated(page.Clean(g.Key)))
	// the title has the innermost
	calls := name.UserCalls(g.Stack)
	for i := 1; i < len(calls); i++ {
		layout.Write(out, page.NameIndent+2, page.Dim, page.Clean(calls[i].String()))
	}
}
