package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// The columns of a difference; a name follows.
const (
	changeColumns  = 12
	amountColumns  = 11
	buffersColumns = 17
	amountsColumns = changeColumns + 2*amountColumns + buffersColumns + 2
)

func (d *difference) writeText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.Beside(out, layout.Paint(page.Bold, "A")+" ", page.NoStyle, page.Clean(d.a.String()))
	layout.Beside(out, layout.Paint(page.Bold, "B")+" ", page.NoStyle, page.Clean(d.b.String()))
	if len(d.totals) == 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, d.nothing())
		return out.Flush()
	}
	d.writeTotals(out, layout)
	if d.moved > 0 {
		text := page.Count(uint64(d.moved), "stack") + " of A may be in B with other line numbers, as after an edit: --ignore-lines compares without them"
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, text)
	}
	statics, what := false, "  "+d.by
	if d.totals[0].Device != d.totals[len(d.totals)-1].Device {
		what += ", all chips together"
	}
	for i, g := range d.groups {
		if i == 0 || g.Static != statics {
			statics = g.Static
			fmt.Fprintln(out)
			if statics {
				layout.WriteTitle(out, "", "CBs, DFBs", "  of all programs that are cached: they use the same space in turn")
			}
			head := diffHead(layout)
			if layout.Width == 0 || page.Width(head+what) <= layout.Width {
				head += what
			}
			fmt.Fprintln(out, layout.Paint(page.Dim, head))
		}
		d.writeGroup(out, layout, g)
	}
	switch {
	case len(d.groups) == 0:
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("Nothing differs by %s: %s the same in both.", d.by, isOrAre(d.same)))
	case d.cutOff > 0:
		fmt.Fprintf(out, "\nand %s more: -n 0 lists all\n", page.Grouped(d.cutOff))
	}
	if d.same > 0 && len(d.groups) > 0 {
		fmt.Fprintf(out, "\n%s the same in both\n", isOrAre(d.same))
	}
	return out.Flush()
}

func isOrAre(n int) string {
	if n == 1 {
		return "1 is"
	}
	return page.Grouped(n) + " are"
}

// nothing says that there is nothing to compare, and where there may be something.
func (d *difference) nothing() string {
	if len(d.a.parts.List)+len(d.b.parts.List) > 0 {
		return "Neither has anything of what the flags ask for. A has " + d.a.has() + ", B " + d.b.has() + "."
	}
	text := "Neither has anything allocated."
	if d.a.at.left() && d.b.at.left() {
		text += " --at peak compares what they had when they had most."
	}
	return text
}

// has is what there is to ask for: "DRAM, L1 of PID 7".
func (s *diffSide) has() string {
	var regions, pids []string
	for _, r := range shownRegions {
		if slices.ContainsFunc(s.parts.List, func(p aggregate.Part) bool { return p.Region == r }) {
			regions = append(regions, r.String())
		}
	}
	if regions == nil {
		return "nothing"
	}
	for i := range s.parts.List {
		if pid := fmt.Sprint(s.parts.List[i].PID); !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return strings.Join(regions, ", ") + " of PID " + page.Some(pids, "process")
}

// diffHead is the head of the columns that amounts writes.
func diffHead(layout page.Layout) string {
	head := page.Right("change", changeColumns) + page.Right("A", amountColumns) + page.Right("B", amountColumns)
	if fewAmounts(layout) {
		return head
	}
	return head + page.Right("buffers", buffersColumns)
}

// fewAmounts reports whether there is no room for numbers of buffers beside the amounts.
func fewAmounts(l page.Layout) bool { return l.Width > 0 && l.Width < amountsColumns }

// writeTotals writes a line for each region of each chip. Chips that have the same are
// one.
func (d *difference) writeTotals(out *bufio.Writer, layout page.Layout) {
	type chip struct {
		ids    []int
		totals []diffTotal
	}
	var chips []chip
	for i := 0; i < len(d.totals); {
		j := i
		for j < len(d.totals) && d.totals[j].Device == d.totals[i].Device {
			j++
		}
		this := d.totals[i:j]
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
			fmt.Fprintln(out, layout.Paint(page.Dim, diffHead(layout)))
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

func sameTotals(a, b []diffTotal) bool {
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

// writeAmounts writes two amounts, and what they are of.
func writeAmounts(out *bufio.Writer, layout page.Layout, a, b amount, title string) {
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

func (d *difference) writeGroup(out *bufio.Writer, layout page.Layout, g *diffGroup) {
	writeAmounts(out, layout, g.A, g.B, layout.Separated(page.Clean(g.Key)))
	// the innermost is in the title
	calls := name.UserCalls(g.Stack)
	for i := 1; i < len(calls); i++ {
		layout.Write(out, page.NameIndent+2, page.Dim, page.Clean(calls[i].String()))
	}
}

// diffDocument is what `ttmem diff --json` prints.
type diffDocument struct {
	V int      `json:"v"`
	A diffFile `json:"a"`
	B diffFile `json:"b"`
	// Totals are of chips and regions, and Groups of what --by says.
	Totals []diffTotal  `json:"totals"`
	By     string       `json:"by"`
	Groups []*diffGroup `json:"groups"`
	// Same is how many groups are left out as they do not differ, and Omitted how many
	// because of -n.
	Same    int `json:"same"`
	Omitted int `json:"omitted"`
}

type diffFile struct {
	File   string            `json:"file"`
	Moment string            `json:"moment"`
	Lost   map[string]uint64 `json:"lost"`
}

func (d *difference) writeJSON(w io.Writer) error {
	of := func(s *diffSide) diffFile { return diffFile{s.path, s.at.text, s.lost} }
	doc := &diffDocument{V: 1, A: of(d.a), B: of(d.b), Totals: d.totals, By: d.by, Groups: d.groups, Same: d.same, Omitted: d.cutOff}
	if doc.Totals == nil {
		doc.Totals = []diffTotal{}
	}
	if doc.Groups == nil {
		doc.Groups = []*diffGroup{}
	}
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(doc); err != nil {
		return err
	}
	return out.Flush()
}
