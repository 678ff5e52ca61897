// Package diff compares what is live on two sides by call stack.
package diff

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
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
	// Unfreed is true if the side is the buffers that were never freed.
	Unfreed bool
	Parts   analyze.Parts
	Losses  memory.AllLosses
	Snap    *memory.Snapshot // has the processes
}

// String is the side in a sentence: "model.ttmem at the end".
func (s *Side) String() string { return s.Path + " " + s.When }

// Options say what is listed.
type Options struct {
	// By is the value of --by.
	By string
	// IgnoreLines compares call stacks by function, without lines.
	IgnoreLines bool
	Limit       int // 0: all
}

// A Difference is how two sides differ.
type Difference struct {
	a, b   *Side
	by     string
	Groups []*Group // largest growth first
	// Same is how many groups are not listed because they are the same in both, and cutOff
	// how many because of -n.
	Same, cutOff int
	// Moved is how many groups that only A has are in B at other lines, as after an edit.
	Moved  int
	Totals []Total
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
	// Stack is one of B, or of A if B has none.
	Stack []event.Frame `json:"stack,omitempty"`
	// calls are those of the stack without their lines.
	calls groupID
}

// A Total is the sum of one region of a chip.
type Total struct {
	Device      int    `json:"device"`
	Region      string `json:"region"`
	region      event.Region
	A           Amount `json:"a"`
	B           Amount `json:"b"`
	ChangeBytes int64  `json:"change_bytes"`
}

type groupID struct {
	text   string
	static bool
}

func New(a, b *Side, names alloc.Namer, o Options) *Difference {
	d := &Difference{a: a, b: b, by: o.By}
	groups := make(map[groupID]*Group)
	type chipRegion struct {
		device int
		region event.Region
	}
	totals := make(map[chipRegion]*Total)
	ops := operationsOf(a, b)
	for _, side := range []*Side{a, b} {
		n := &alloc.Namer{Rules: names.Rules, Filter: names.Filter, Snap: side.Snap}
		for i := range side.Parts.List {
			part := &side.Parts.List[i]
			row, ok := rowOf(n, part)
			if !ok {
				continue
			}
			if row.Name.Op == "" {
				row.Site.Name.Op = cmp.Or(ops[callsKey(row.Site, false)], ops[callsKey(row.Site, true)])
			}
			for _, id := range row.Devices {
				key := chipRegion{id, part.Region}
				t := totals[key]
				if t == nil {
					t = &Total{Device: id, Region: part.Region.String(), region: part.Region}
					totals[key] = t
				}
				of(side == b, &t.A, &t.B).add(part.Count, part.Bytes)
			}
			keys := o.keys(n, &row)
			for _, k := range keys {
				key := groupID{k.key, part.Static != event.NotStatic}
				g := groups[key]
				if g == nil {
					g = &Group{Static: key.static}
					if o.By == "stack" {
						g.calls = groupID{stackKey(&row, true), key.static}
					}
					groups[key] = g
				}
				if g.Key == "" || side == b && g.B.Buffers == 0 {
					g.Key = k.title
					if o.By == "stack" && part.Stack != nil {
						g.Stack = part.Stack.Frames()
					}
				}
				of(side == b, &g.A, &g.B).add(part.Count, row.TotalBytes()/uint64(len(keys)))
			}
		}
	}
	d.order(groups, o)
	for _, t := range totals {
		t.ChangeBytes = int64(t.B.Bytes) - int64(t.A.Bytes)
		d.Totals = append(d.Totals, *t)
	}
	slices.SortFunc(d.Totals, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device),
			cmp.Compare(slices.Index(alloc.Regions, a.region), slices.Index(alloc.Regions, b.region)))
	})
	return d
}

// of is the amount of one of the two sides.
func of(isB bool, a, b *Amount) *Amount {
	if isB {
		return b
	}
	return a
}

// order sorts the groups and removes those that are not listed.
func (d *Difference) order(groups map[groupID]*Group, o Options) {
	inB := make(map[groupID]bool)
	for _, g := range groups {
		inB[g.calls] = inB[g.calls] || o.By == "stack" && g.A.Buffers == 0
	}
	for _, g := range groups {
		if g.B.Buffers == 0 && inB[g.calls] {
			d.Moved++
		}
		g.ChangeBytes = int64(g.B.Bytes) - int64(g.A.Bytes)
		g.ChangeBuffers = int64(g.B.Buffers) - int64(g.A.Buffers)
		if g.A == g.B {
			d.Same++
		}
	}
	d.Groups = slices.SortedFunc(maps.Values(groups), func(a, b *Group) int {
		return cmp.Or(page.CompareBool(a.Static, b.Static), cmp.Compare(b.ChangeBytes, a.ChangeBytes),
			cmp.Compare(b.ChangeBuffers, a.ChangeBuffers), cmp.Compare(b.B.Bytes, a.B.Bytes), cmp.Compare(a.Key, b.Key),
			page.CompareFrames(a.Stack, b.Stack))
	})
	d.Groups = slices.DeleteFunc(d.Groups, func(g *Group) bool { return g.A == g.B })
	if o.Limit > 0 && o.Limit < len(d.Groups) {
		d.cutOff = len(d.Groups) - o.Limit
		d.Groups = d.Groups[:o.Limit]
	}
}

// rowOf is a row for a part; ok is false if the filter does not select it.
func rowOf(n *alloc.Namer, p *memory.SiteAmount) (_ alloc.Row, ok bool) {
	a := alloc.Row{
		Devices: p.Devices, Region: p.Region, PID: p.PID, BytesPerBank: p.Bytes, Banks: 1, BeforeAttach: p.BeforeAttach, Layout: p.Layout.String(),
	}
	if p.Static != event.NotStatic {
		a.Layout = p.Static.String()
	}
	return n.Row(a, p.Stack)
}

// A groupKey is the same for a group in both sides; title is its name.
type groupKey struct{ key, title string }

// keys are the groups that a row is in.
func (o *Options) keys(n *alloc.Namer, a *alloc.Row) (keys []groupKey) {
	switch o.By {
	case "process": // by name: another run has other ids
		name := n.ProcessName(a.PID)
		return []groupKey{{name, name}}
	case "stack":
		return []groupKey{{stackKey(a, o.IgnoreLines), n.Title(a, " · ")}}
	}
	g := alloc.GroupingOf(o.By)
	for _, text := range g.Keys(n, a) {
		keys = append(keys, groupKey{text, text})
	}
	return keys
}

// stackKey is the same in two runs for the same calls of the same program. It has the
// operation and the user's own calls: calls of tt-metal and ttnn in between may differ in
// another release.
func stackKey(a *alloc.Row, ignoreLines bool) string {
	return fmt.Sprintf("%t %t %s", a.Stack == nil, a.BeforeAttach, a.Name.Op) + callsKey(a.Site, ignoreLines)
}

// operationsOf are the operations of calls, with lines and without, if calls are in only one
// operation. The first stacks of a process may lack it in one run and have it in another:
// they end early while the libraries are read.
func operationsOf(sides ...*Side) map[string]string {
	ops := make(map[string]string)
	known := make(map[*event.Stack]bool)
	for _, side := range sides {
		for i := range side.Parts.List {
			stack := side.Parts.List[i].Stack
			if stack == nil || known[stack] {
				continue
			}
			known[stack] = true
			op := name.Of(stack.Frames()).Op
			if op == "" {
				continue
			}
			for _, ignoreLines := range []bool{false, true} {
				calls := callsKey(&alloc.Site{Stack: stack}, ignoreLines)
				if other, ok := ops[calls]; ok && other != op {
					ops[calls] = ""
				} else {
					ops[calls] = op
				}
			}
		}
	}
	return ops
}

// callsKey is the same for the same calls of the user's own code.
func callsKey(s *alloc.Site, ignoreLines bool) string {
	var b strings.Builder
	for _, call := range name.UserCalls(s.Stack.Frames()) {
		fmt.Fprintf(&b, "\n%s %s", path.Base(call.File), call.Function)
		if !ignoreLines {
			fmt.Fprintf(&b, ":%d", call.Line)
		}
	}
	return b.String()
}

// Grown is the region whose buffers have grown most, on all chips together. Circular buffers
// do not count: programs share their space.
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
