// Package diff compares the live memory of two sides by call stack.
package diff

import (
	"cmp"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
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
	Groups []*Group // largest growth first
	// Same is the number of groups that are left out because they do not differ, and cutOff the
	// number of smaller changes that -n leaves out.
	Same, cutOff int
	// Moved is how many of the same groups have another line, as after an edit.
	Moved  int
	Totals []Total
	// most is the group with the largest change; nil if nothing differs.
	most *Group
}

// An Amount is a number of buffers, and their bytes in all banks of all their chips.
type Amount struct {
	Buffers uint64 `json:"buffers"`
	Bytes   uint64 `json:"bytes"`
}

func (a *Amount) add(count, bytes uint64) { a.Buffers += count; a.Bytes += bytes }

// A Group is buffers that are counted together.
type Group struct {
	Key string `json:"key"`
	// Static is true for circular and dataflow buffers, whose programs use the same
	// space one after the other.
	Static        bool   `json:"static,omitempty"`
	A             Amount `json:"a"`
	B             Amount `json:"b"`
	ChangeBuffers int64  `json:"change_buffers"`
	ChangeBytes   int64  `json:"change_bytes"`
	// Region is the region of a group by stack. ALine is the line of its innermost call in A, if
	// that differs from the line in B.
	Region string `json:"region,omitempty" schema:"region"`
	ALine  int    `json:"a_line,omitempty"`
	// Class is what the buffers of a group by stack are for; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// Stack is a stack of B, or of A if B has none.
	Stack []event.Frame `json:"stack,omitempty"`
	moved bool
	// Look is what the row of a group by stack shows.
	alloc.Look `json:"-"`
}

// Add adds another group of the same line.
func (g *Group) Add(other *Group) {
	g.Key, g.ALine = g.Text, max(g.ALine, other.ALine)
	g.A.add(other.A.Buffers, other.A.Bytes)
	g.B.add(other.B.Buffers, other.B.Bytes)
	g.ChangeBuffers, g.ChangeBytes = g.ChangeBuffers+other.ChangeBuffers, g.ChangeBytes+other.ChangeBytes
}

// A Total is the sum of one region of a chip.
type Total struct {
	Device      int    `json:"device"`
	Region      string `json:"region" schema:"region"`
	region      event.Region
	A           Amount `json:"a"`
	B           Amount `json:"b"`
	ChangeBytes int64  `json:"change_bytes"`
}

// New compares two sides. The filter of names has no processes: each side has its own.
func New(a, b *Side, names alloc.Namer, o Options) *Difference {
	d := &Difference{a: a, b: b, by: o.By, note: o.Note}
	var groups page.Groups[alloc.Key, Group]
	type chipRegion struct {
		device int
		region event.Region
	}
	var totals page.Groups[chipRegion, Total]
	keys := newKeys(a, b, o)
	for _, side := range []*Side{a, b} {
		n := &alloc.Namer{Rules: names.Rules, Filter: names.Filter, Snap: side.Snap}
		n.Filter.PIDs = side.PIDs
		for i := range side.Parts.List {
			part := &side.Parts.List[i]
			row, ok := rowOf(n, part)
			if !ok {
				continue
			}
			if o.By == "owner" {
				row.Owner.Path = part.Owner
			}
			row.OwnerClass = part.Class
			for _, id := range row.Devices {
				t, _ := totals.Of(chipRegion{id, part.Region})
				t.Device, t.Region, t.region = id, part.Region.String(), part.Region
				of(side == b, &t.A, &t.B).add(part.Count, part.Bytes)
			}
			list := keys.of(n, &row, side == b)
			for _, k := range list {
				g, found := groups.Of(k.Key)
				g.Static = part.Region == event.CB
				if !found || side == b && g.B.Buffers == 0 {
					g.Key = k.title
					if o.By == "stack" {
						g.Region, g.Stack = part.Region.String(), part.Stack.Frames()
						g.Look = n.Look(&row, part.Region)
						g.Class = g.Look.Class.String()
					}
				}
				if g.moved = g.moved || k.moved; k.line > 0 {
					g.ALine = k.line
				}
				of(side == b, &g.A, &g.B).add(part.Count, row.TotalBytes()/uint64(len(list)))
			}
		}
	}
	d.order(groups.List, o)
	for _, t := range totals.List {
		t.ChangeBytes = int64(t.B.Bytes) - int64(t.A.Bytes)
		d.Totals = append(d.Totals, *t)
	}
	slices.SortFunc(d.Totals, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device),
			cmp.Compare(slices.Index(alloc.Regions, a.region), slices.Index(alloc.Regions, b.region)))
	})
	return d
}

// of returns the amount of one of the two sides.
func of(isB bool, a, b *Amount) *Amount {
	if isB {
		return b
	}
	return a
}

// order sorts the groups and removes those that are not to be listed.
func (d *Difference) order(groups []*Group, o Options) {
	for _, g := range groups {
		g.ChangeBytes = int64(g.B.Bytes) - int64(g.A.Bytes)
		g.ChangeBuffers = int64(g.B.Buffers) - int64(g.A.Buffers)
		switch {
		case g.B.Buffers == 0:
			if g.ALine > 0 { // its name has the line, which in B is another one
				g.ALine = 0
				g.Apart += "A"
			}
		case g.A == g.B:
			d.Same++
			if g.moved {
				d.Moved++
			}
		}
	}
	d.Groups = slices.DeleteFunc(groups, func(g *Group) bool { return g.A == g.B })
	if o.Lines && o.By == "stack" {
		d.Groups = alloc.Fold(d.Groups, true)
	}
	slices.SortFunc(d.Groups, func(a, b *Group) int {
		return cmp.Or(memory.CompareBools(!a.Static, !b.Static), cmp.Compare(max(b.ChangeBytes, -b.ChangeBytes), max(a.ChangeBytes, -a.ChangeBytes)),
			cmp.Compare(b.ChangeBytes, a.ChangeBytes), cmp.Compare(b.ChangeBuffers, a.ChangeBuffers), cmp.Compare(b.B.Bytes, a.B.Bytes),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Region, b.Region), page.CompareFrames(a.Stack, b.Stack))
	})
	if len(d.Groups) > 0 {
		d.most = d.Groups[0]
	}
	d.Groups, d.cutOff = page.First(d.Groups, o.Limit)
	slices.SortStableFunc(d.Groups, func(a, b *Group) int { // each largest first
		return cmp.Or(memory.CompareBools(!a.Static, !b.Static), memory.CompareBools(a.ChangeBytes > 0, b.ChangeBytes > 0))
	})
}

// Grown returns the region whose buffers grew most, over all chips. Circular buffers do not
// count: programs share their space.
func (d *Difference) Grown() (name string, bytes int64) {
	sums := make(map[event.Region]int64)
	for i := range d.Totals {
		if r := d.Totals[i].region; r != event.CB {
			sums[r] += d.Totals[i].ChangeBytes
		}
	}
	for _, r := range alloc.Regions {
		if sums[r] > bytes {
			name, bytes = r.String(), sums[r]
		}
	}
	return name, bytes
}
