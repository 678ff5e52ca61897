// Package diff compares the live memory of two sides by call stack.
package diff

import (
	"cmp"
	"slices"
	"strconv"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// A Side is one of the two moments that are compared.
type Side struct {
	Path string
	// Moment is the moment as the user wrote it, and When the same in a sentence: "at the
	// end".
	Moment, When string
	// TimeNs is the moment by CLOCK_MONOTONIC; 0 for peaks, which are at different times. Clock
	// is that of the side.
	TimeNs uint64
	Clock  page.Clock
	// Span has the calls that are compared; zero for a moment.
	Span page.Span
	// PIDs are the only processes that count; all if there are none. If Live is true, the side is
	// these processes, and Path names them instead of a file.
	PIDs   []int
	Live   bool
	Parts  analyze.Parts
	Losses memory.AllLosses
	Snap   *memory.Snapshot // has the processes
}

// String is the side in a sentence: "model.ttmem at the end".
func (s *Side) String() string { return s.Path + " " + s.When }

// Options select what to list.
type Options struct {
	// By is the value of --by.
	By    string
	Limit int // 0: all
	// Lines is true if a line with several call sites has one row.
	Lines bool
	// Note says why these moments are compared; "" if the user selected them.
	Note string
}

// A Difference is how two sides differ.
type Difference struct {
	a, b   *Side
	by     string
	note   string
	Groups []*alloc.Row // largest growth first
	// Same is the number of groups that are left out because they do not differ, and cutOff the
	// number of smaller changes that -n leaves out.
	Same, cutOff int
	// Moved is how many of the same groups have another line, as after an edit.
	Moved int
	// Totals are the sums of the regions of each chip.
	Totals []*alloc.Row
	// most is the group with the largest change; nil if nothing differs.
	most *alloc.Row
}

// The measures: buffers, and their bytes in all banks of all their chips.
const (
	inA = iota
	inB
	measures
)

// New compares two sides. The filter of names has no processes: each side has its own.
func New(a, b *Side, names alloc.Namer, o Options) *Difference {
	d := &Difference{a: a, b: b, by: o.By, note: o.Note}
	var totals table.Table
	groups := &table.Table{By: o.By}
	keys := newKeys(a, b, o.By)
	for _, side := range []int{inB, inA} {
		d.add(groups, &totals, keys, side, names)
	}
	d.order(groups, o)
	d.Totals = totals.Rows(false, func(a, b *alloc.Row) int {
		return cmp.Or(cmp.Compare(a.Devices[0], b.Devices[0]), cmp.Compare(slices.Index(alloc.Regions, a.Region), slices.Index(alloc.Regions, b.Region)))
	})
	return d
}

// add adds the parts of a side: of B first, whose names and stacks are shown.
func (d *Difference) add(groups, totals *table.Table, keys *keys, side int, names alloc.Namer) {
	s := [measures]*Side{d.a, d.b}[side]
	n := &alloc.Namer{Rules: names.Rules, Filter: names.Filter, Snap: s.Snap}
	n.Filter.PIDs = s.PIDs
	groups.Names = n
	for i := range s.Parts.List {
		part := &s.Parts.List[i]
		row, ok := n.Row(alloc.RowOf(&part.Site), part.Stack)
		if !ok {
			continue
		}
		if row.OwnerClass = part.Class; d.by == "owner" {
			row.Owner.Path = part.Owner
		}
		row.Amounts = make([]memory.Amount, measures)
		row.Amounts[side] = part.Amount
		for _, id := range row.Devices {
			one := row
			one.Devices = []int{id}
			key := alloc.Key{Text: row.Region.String(), Apart: strconv.Itoa(id)}
			totals.AddAs(&one, key, alloc.Look{Key: key})
		}
		row.Amounts = slices.Clone(row.Amounts)
		row.Amounts[side].Bytes *= uint64(max(1, len(row.Devices)))
		keys.add(groups, &row, side)
	}
}

// Change is how many bytes more B has of a group.
func Change(r *alloc.Row) int64 { return int64(r.Amounts[inB].Bytes) - int64(r.Amounts[inA].Bytes) }

// changeBuffers is how many buffers more B has.
func changeBuffers(r *alloc.Row) int64 {
	return int64(r.Amounts[inB].Count) - int64(r.Amounts[inA].Count)
}

func same(r *alloc.Row) bool { return r.Amounts[inA] == r.Amounts[inB] }

// isStatic reports whether a row is circular and dataflow buffers, whose programs use the same space one
// after the other.
func isStatic(r *alloc.Row) bool { return r.Region == event.CB }

// largest orders rows by the size of their change.
func largest(a, b *alloc.Row) int {
	x, y := Change(a), Change(b)
	order := cmp.Or(memory.CompareBools(!isStatic(a), !isStatic(b)), cmp.Compare(max(y, -y), max(x, -x)), cmp.Compare(y, x),
		cmp.Compare(changeBuffers(b), changeBuffers(a)), cmp.Compare(b.Amounts[inB].Bytes, a.Amounts[inB].Bytes),
		cmp.Compare(a.Text, b.Text), cmp.Compare(a.Region.String(), b.Region.String()))
	if order != 0 {
		return order // stacks are long
	}
	return page.CompareFrames(a.Stack.Frames(), b.Stack.Frames())
}

// order sorts the groups and removes those that are not to be listed.
func (d *Difference) order(groups *table.Table, o Options) {
	for _, g := range groups.Rows(false, largest) {
		if same(g) {
			if d.Same++; g.Moved {
				d.Moved++
			}
			continue
		}
		if g.Amounts[inB].Count == 0 && g.ALine > 0 { // its name has the line, which in B is another one
			g.ALine = 0
			g.Apart += "A"
		}
		d.Groups = append(d.Groups, g)
	}
	if o.Lines && o.By == "stack" {
		d.Groups = alloc.Fold(d.Groups, true)
		slices.SortStableFunc(d.Groups, largest)
	}
	if len(d.Groups) > 0 {
		d.most = d.Groups[0]
	}
	d.Groups, d.cutOff = page.First(d.Groups, o.Limit)
	slices.SortStableFunc(d.Groups, func(a, b *alloc.Row) int { // each largest first
		return cmp.Or(memory.CompareBools(!isStatic(a), !isStatic(b)), memory.CompareBools(Change(a) > 0, Change(b) > 0))
	})
}

// Growth returns the groups that grew, largest first. Circular buffers do not count.
func (d *Difference) Growth() (rows []*alloc.Row) {
	for _, g := range d.Groups {
		if !isStatic(g) && Change(g) > 0 {
			rows = append(rows, g)
		}
	}
	return rows
}

// Grown returns the region whose buffers grew most, over all chips. Circular buffers do not
// count: programs share their space.
func (d *Difference) Grown() (name string, bytes int64) {
	sums := make(map[event.Region]int64)
	for _, t := range d.Totals {
		if !isStatic(t) {
			sums[t.Region] += Change(t)
		}
	}
	for _, r := range alloc.Regions {
		if sums[r] > bytes {
			name, bytes = r.String(), sums[r]
		}
	}
	return name, bytes
}
