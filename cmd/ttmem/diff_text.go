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
	"ttmem/tracer/event"
)

// The columns of a difference; a name follows.
const (
	changeColumns  = 12
	amountColumns  = 11
	buffersColumns = 17
	amountsColumns = changeColumns + 2*amountColumns + buffersColumns + 2
)

func (d *difference) writeText(w io.Writer, layout listLayout) error {
	out := bufio.NewWriter(w)
	layout.beside(out, layout.paint(bold, "A")+" ", noStyle, plain(d.a.String()))
	layout.beside(out, layout.paint(bold, "B")+" ", noStyle, plain(d.b.String()))
	if len(d.totals) == 0 {
		fmt.Fprintln(out)
		layout.write(out, 0, noStyle, d.nothing())
		return out.Flush()
	}
	d.writeTotals(out, layout)
	if d.moved > 0 {
		text := formatCount(uint64(d.moved), "stack") + " of A may be in B with other line numbers, as after an edit: --ignore-lines compares without them"
		fmt.Fprintln(out)
		layout.write(out, 0, noStyle, text)
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
				layout.writeTitle(out, "", "CBs, DFBs", "  of all programs that are cached: they use the same space in turn")
			}
			head := diffHead(layout)
			if layout.width == 0 || width(head+what) <= layout.width {
				head += what
			}
			fmt.Fprintln(out, layout.paint(dim, head))
		}
		d.writeGroup(out, layout, g)
	}
	switch {
	case len(d.groups) == 0:
		fmt.Fprintln(out)
		layout.write(out, 0, noStyle, fmt.Sprintf("Nothing differs by %s: %s the same in both.", d.by, isOrAre(d.same)))
	case d.cutOff > 0:
		fmt.Fprintf(out, "\nand %s more: -n 0 lists all\n", formatGrouped(d.cutOff))
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
	return formatGrouped(n) + " are"
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
	return strings.Join(regions, ", ") + " of PID " + listSome(pids, "process")
}

// diffHead is the head of the columns that amounts writes.
func diffHead(layout listLayout) string {
	head := right("change", changeColumns) + right("A", amountColumns) + right("B", amountColumns)
	if layout.fewAmounts() {
		return head
	}
	return head + right("buffers", buffersColumns)
}

// fewAmounts reports whether there is no room for numbers of buffers beside the amounts.
func (l listLayout) fewAmounts() bool { return l.width > 0 && l.width < amountsColumns }

// writeTotals writes a line for each region of each chip. Chips that have the same are
// one.
func (d *difference) writeTotals(out *bufio.Writer, layout listLayout) {
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
		title := formatIDs(c.ids)
		if len(c.ids) > 1 {
			title += " (each)"
		}
		if i == 0 {
			fmt.Fprintln(out)
			fmt.Fprintln(out, layout.paint(dim, diffHead(layout)))
		}
		fmt.Fprintln(out, layout.paint(bold, title))
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
func writeAmounts(out *bufio.Writer, layout listLayout, a, b amount, title string) {
	style := noStyle
	switch {
	case b.Bytes > a.Bytes:
		style = red
	case b.Bytes < a.Bytes:
		style = green
	}
	buffers, noun := fmt.Sprint(b.Buffers), " buffers"
	if b.Buffers == 1 {
		noun = " buffer"
	}
	if a.Buffers != b.Buffers {
		buffers = fmt.Sprintf("%d%s%d", a.Buffers, layout.pick(" → ", " > "), b.Buffers)
	}
	columns := layout.paint(style, right(formatChange(int64(b.Bytes)-int64(a.Bytes)), changeColumns)) +
		right(formatBytes(a.Bytes), amountColumns) + right(formatBytes(b.Bytes), amountColumns)
	below := layout.fewAmounts()
	if below {
		title = buffers + noun + ", " + title
	} else {
		columns += right(buffers, buffersColumns) + "  "
		below = layout.width > 0 && amountsColumns+width(title) > layout.width
	}
	if !below {
		fmt.Fprintln(out, columns+title)
		return
	}
	fmt.Fprintln(out, strings.TrimRight(columns, " "))
	layout.write(out, nameIndent, noStyle, title)
}

// formatChange writes a change of bytes with its sign.
func formatChange(n int64) string {
	switch {
	case n > 0:
		return "+" + formatBytes(uint64(n))
	case n < 0:
		return "-" + formatBytes(uint64(-n))
	}
	return "="
}

func (d *difference) writeGroup(out *bufio.Writer, layout listLayout, g *diffGroup) {
	writeAmounts(out, layout, g.A, g.B, layout.separated(plain(g.Key)))
	// the innermost is in the title
	calls := name.UserCalls(g.Stack)
	for i := 1; i < len(calls); i++ {
		layout.write(out, nameIndent+2, dim, plain(calls[i].String()))
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
