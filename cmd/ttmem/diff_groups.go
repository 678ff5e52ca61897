package main

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A difference is what two sides have of each other.
type difference struct {
	a, b   *diffSide
	by     string
	groups []*diffGroup // largest growth first, and what has shrunk most last
	// same is how many groups are the same in both and not listed, and cutOff how many
	// are not because of -n.
	same, cutOff int
	// moved is how many groups of A alone are in B at other lines, as after an edit.
	moved  int
	totals []diffTotal
}

// An amount is a number of buffers, and what they take of all banks of all their chips.
type amount struct {
	Buffers uint64 `json:"buffers"`
	Bytes   uint64 `json:"bytes"`
}

func (a *amount) add(count, bytes uint64) { a.Buffers += count; a.Bytes += bytes }

// A diffGroup is what is counted together.
type diffGroup struct {
	Key string `json:"key"`
	// Static is true for circular and dataflow buffers, whose programs use the same
	// space one after the other.
	Static        bool   `json:"static,omitempty"`
	A             amount `json:"a"`
	B             amount `json:"b"`
	ChangeBuffers int64  `json:"change_buffers"`
	ChangeBytes   int64  `json:"change_bytes"`
	// Stack is one of B, or of A where B has none.
	Stack []event.Frame `json:"stack,omitempty"`
	// calls are those of the stack without their lines.
	calls diffKey
}

// A diffTotal is all of one region of a chip.
type diffTotal struct {
	Device      int    `json:"device"`
	Region      string `json:"region"`
	region      event.Region
	A           amount `json:"a"`
	B           amount `json:"b"`
	ChangeBytes int64  `json:"change_bytes"`
}

type diffKey struct {
	text   string
	static bool
}

func newDifference(a, b *diffSide, filter dumpFilter, rules *name.Rules, o *diffOptions) *difference {
	d := &difference{a: a, b: b, by: o.by}
	groups := make(map[diffKey]*diffGroup)
	type chipRegion struct {
		device int
		region event.Region
	}
	totals := make(map[chipRegion]*diffTotal)
	ops := operationsOf(a, b)
	for _, side := range []*diffSide{a, b} {
		l := &listing{rules: rules, filter: filter, snap: side.snap}
		sites := make(map[*event.Stack]*site)
		for i := range side.parts.List {
			part := &side.parts.List[i]
			row := l.ofPart(part, sites)
			if row == nil {
				continue
			}
			if row.name.Op == "" {
				row.site.name.Op = cmp.Or(ops[callsKey(row.site, false)], ops[callsKey(row.site, true)])
			}
			for _, id := range row.devices {
				key := chipRegion{id, part.Region}
				t := totals[key]
				if t == nil {
					t = &diffTotal{Device: id, Region: part.Region.String(), region: part.Region}
					totals[key] = t
				}
				t.of(side == b).add(part.Count, part.Bytes)
			}
			keys := o.keys(l, row, part)
			for _, k := range keys {
				key := diffKey{k.key, part.Static != event.NotStatic}
				g := groups[key]
				if g == nil {
					g = &diffGroup{Static: key.static}
					if o.by == "stack" {
						g.calls = diffKey{stackKey(row, true), key.static}
					}
					groups[key] = g
				}
				if g.Key == "" || side == b && g.B.Buffers == 0 {
					g.Key = k.title
					if o.by == "stack" && part.Stack != nil {
						g.Stack = part.Stack.Frames()
					}
				}
				g.of(side == b).add(part.Count, row.taken()/uint64(len(keys)))
			}
		}
	}
	d.order(groups, o)
	for _, t := range totals {
		t.ChangeBytes = int64(t.B.Bytes) - int64(t.A.Bytes)
		d.totals = append(d.totals, *t)
	}
	slices.SortFunc(d.totals, func(a, b diffTotal) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device),
			cmp.Compare(slices.Index(shownRegions, a.region), slices.Index(shownRegions, b.region)))
	})
	return d
}

func (g *diffGroup) of(b bool) *amount {
	if b {
		return &g.B
	}
	return &g.A
}

func (t *diffTotal) of(b bool) *amount {
	if b {
		return &t.B
	}
	return &t.A
}

// order puts the groups in order, without those that are not to be listed.
func (d *difference) order(groups map[diffKey]*diffGroup, o *diffOptions) {
	inB := make(map[diffKey]bool)
	for _, g := range groups {
		inB[g.calls] = inB[g.calls] || o.by == "stack" && g.A.Buffers == 0
	}
	for _, g := range groups {
		if g.B.Buffers == 0 && inB[g.calls] {
			d.moved++
		}
		g.ChangeBytes = int64(g.B.Bytes) - int64(g.A.Bytes)
		g.ChangeBuffers = int64(g.B.Buffers) - int64(g.A.Buffers)
		if g.A == g.B {
			d.same++
		}
	}
	d.groups = slices.SortedFunc(maps.Values(groups), func(a, b *diffGroup) int {
		return cmp.Or(page.CompareBool(a.Static, b.Static), cmp.Compare(b.ChangeBytes, a.ChangeBytes),
			cmp.Compare(b.ChangeBuffers, a.ChangeBuffers), cmp.Compare(b.B.Bytes, a.B.Bytes), cmp.Compare(a.Key, b.Key),
			page.CompareFrames(a.Stack, b.Stack))
	})
	d.groups = slices.DeleteFunc(d.groups, func(g *diffGroup) bool { return g.A == g.B })
	if o.n > 0 && o.n < len(d.groups) {
		d.cutOff = len(d.groups) - o.n
		d.groups = d.groups[:o.n]
	}
}

// ofPart is a row for all that the part adds up; nil where the filter has none of it.
func (l *listing) ofPart(p *aggregate.Part, sites map[*event.Stack]*site) *allocation {
	a := allocation{
		devices: p.Devices, region: p.Region, pid: p.PID, perBank: p.Bytes, banks: 1, before: p.BeforeAttach, layout: p.Layout.String(),
	}
	if p.Static != event.NotStatic {
		a.layout = p.Static.String()
	}
	l.rows = l.rows[:0]
	l.add(a, p.Stack, sites)
	if len(l.rows) == 0 {
		return nil
	}
	return &l.rows[0]
}

// A groupKey tells a group apart in both sides, and title is what it is called.
type groupKey struct{ key, title string }

// keys are the groups that a row is in.
func (o *diffOptions) keys(l *listing, a *allocation, p *aggregate.Part) (keys []groupKey) {
	switch o.by {
	case "process": // by name: ids are others in another run
		name := l.processName(a.pid)
		return []groupKey{{name, name}}
	case "stack":
		return []groupKey{{stackKey(a, o.ignoreLines), l.title(a, " · ")}}
	}
	g := groupingOf(o.by)
	for _, text := range g.keys(l, a) {
		keys = append(keys, groupKey{text, text})
	}
	return keys
}

// processName is the name of a process, also of one that ended.
func (l *listing) processName(pid int) string {
	for i := range l.snap.Processes {
		if p := &l.snap.Processes[i]; p.PID == pid && page.ProcessName(p) != "" {
			return page.ProcessName(p)
		}
	}
	return fmt.Sprintf("PID %d", pid)
}

// stackKey is the same in two runs for what the same calls of the same program
// allocated: the operation and the user's own calls. What tt-metal and ttnn do in
// between may be different in another release.
func stackKey(a *allocation, ignoreLines bool) string {
	return fmt.Sprintf("%t %t %s", a.stack == nil, a.before, a.name.Op) + callsKey(a.site, ignoreLines)
}

// operationsOf are the operations that calls are in, with their lines and without, where
// they are in one alone. The first stacks of a process may lack theirs in one run and have
// it in another: they end early while the libraries are read.
func operationsOf(sides ...*diffSide) map[string]string {
	ops := make(map[string]string)
	known := make(map[*event.Stack]bool)
	for _, side := range sides {
		for i := range side.parts.List {
			stack := side.parts.List[i].Stack
			if stack == nil || known[stack] {
				continue
			}
			known[stack] = true
			op := name.Of(stack.Frames()).Op
			if op == "" {
				continue
			}
			for _, ignoreLines := range []bool{false, true} {
				calls := callsKey(&site{stack: stack}, ignoreLines)
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
func callsKey(s *site, ignoreLines bool) string {
	var b strings.Builder
	for _, call := range name.UserCalls(s.stack.Frames()) {
		fmt.Fprintf(&b, "\n%s %s", path.Base(call.File), call.Function)
		if !ignoreLines {
			fmt.Fprintf(&b, ":%d", call.Line)
		}
	}
	return b.String()
}

// grown is the region whose buffers have grown most, on all chips together. That of
// circular buffers is none: programs share it.
func (d *difference) grown() (name string, bytes int64) {
	sums := make(map[event.Region]int64)
	for i := range d.totals {
		if r := d.totals[i].region; r != event.CB {
			sums[r] += d.totals[i].ChangeBytes
		}
	}
	for _, r := range shownRegions {
		if sums[r] > bytes {
			name, bytes = r.String(), sums[r]
		}
	}
	return name, bytes
}
