package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// The columns of a difference; a name follows.
const (
	changeColumns  = 12
	amountColumns  = 11
	buffersColumns = 17
)

func (d *difference) writeText(w io.Writer, layout listLayout) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, layout.paint(bold, "A")+" "+plain(d.a.String()))
	fmt.Fprintln(out, layout.paint(bold, "B")+" "+plain(d.b.String()))
	if len(d.totals) == 0 {
		fmt.Fprintln(out, "\n"+d.nothing())
		return out.Flush()
	}
	d.writeTotals(out, layout)
	if d.moved > 0 {
		text := formatCount(uint64(d.moved), "stack") + " of A may be in B with other line numbers, as after an edit: --ignore-lines compares without them"
		fmt.Fprintln(out)
		for _, line := range wrap(text, layout.columns()) {
			fmt.Fprintln(out, line)
		}
	}
	statics, what := false, "  "+d.by
	if d.totals[0].Device != d.totals[len(d.totals)-1].Device {
		what += ", on all chips together"
	}
	for i, g := range d.groups {
		if i == 0 || g.Static != statics {
			statics = g.Static
			fmt.Fprintln(out)
			if statics {
				fmt.Fprintln(out, layout.paint(bold, "CBs, DFBs")+layout.paint(dim, "  of all programs that are cached: they use the same space in turn"))
			}
			fmt.Fprintln(out, layout.paint(dim, d.head(what)))
		}
		d.writeGroup(out, layout, g)
	}
	switch {
	case len(d.groups) == 0:
		fmt.Fprintf(out, "\nNothing differs by %s: %s the same in both.\n", d.by, isOrAre(d.same))
	case d.cutOff > 0:
		fmt.Fprintf(out, "\nand %s more: -n 0 lists all\n", formatGrouped(d.cutOff))
	}
	if d.same > 0 && len(d.groups) > 0 {
		fmt.Fprintf(out, "\n%s the same in both: --all lists them\n", isOrAre(d.same))
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
		return "Neither has anything of what the flags ask for."
	}
	text := "Neither has anything allocated."
	if d.a.at.atEnd() && d.b.at.atEnd() {
		text += " --at peak compares what they had when they had most."
	}
	return text
}

func (d *difference) head(what string) string {
	return right("change", changeColumns) + right("A", amountColumns) + right("B", amountColumns) + right("buffers", buffersColumns) + what
}

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
			fmt.Fprintln(out, layout.paint(dim, d.head("")))
		}
		fmt.Fprintln(out, layout.paint(bold, title))
		for _, t := range c.totals {
			name := t.region.String()
			if t.region == event.CB {
				name = "CBs, DFBs, of all programs"
			}
			fmt.Fprintln(out, amounts(layout, t.A, t.B)+"  "+name)
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

// amounts are the columns of two amounts.
func amounts(layout listLayout, a, b amount) string {
	style := noStyle
	switch {
	case b.Bytes > a.Bytes:
		style = red
	case b.Bytes < a.Bytes:
		style = green
	}
	buffers := fmt.Sprint(b.Buffers)
	if a.Buffers != b.Buffers {
		buffers = fmt.Sprintf("%d%s%d", a.Buffers, layout.pick(" → ", " > "), b.Buffers)
	}
	return layout.paint(style, right(formatChange(int64(b.Bytes)-int64(a.Bytes)), changeColumns)) +
		right(formatBytes(a.Bytes), amountColumns) + right(formatBytes(b.Bytes), amountColumns) + right(buffers, buffersColumns)
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
	line := amounts(layout, g.A, g.B) + "  "
	const columns = changeColumns + 2*amountColumns + buffersColumns + 2
	title := plain(g.Key)
	room := layout.width - columns
	if layout.width == 0 || width(title) <= room {
		fmt.Fprintln(out, line+title)
	} else {
		fmt.Fprintln(out, strings.TrimRight(line, " "))
		for _, part := range wrap(title, layout.width-nameIndent) {
			fmt.Fprintln(out, left("", nameIndent)+part)
		}
	}
	// the innermost is in the title
	calls := aggregate.OwnCalls(g.Stack)
	for i := 1; i < len(calls); i++ {
		fmt.Fprintln(out, layout.paint(dim, left("", nameIndent+2)+plain(calls[i].String())))
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
