package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// dumpGrouping tells the groups of a dump apart: a row is in one, or in one for each
// of its chips.
type dumpGrouping struct {
	name string
	keys func(l *listing, a *allocation) []string
}

var groupingList = []dumpGrouping{
	{"stack", func(l *listing, a *allocation) []string { return []string{l.title(a, " · ")} }},
	{"op", func(l *listing, a *allocation) []string {
		return []string{cmp.Or(page.Clean(a.name.Op), "(unknown operation)")}
	}},
	{"file", func(l *listing, a *allocation) []string {
		return []string{cmp.Or(page.Clean(a.name.Call.File), "(unknown file)")}
	}},
	{"component", func(l *listing, a *allocation) []string {
		return []string{cmp.Or(page.Clean(a.component), "(no component)")}
	}},
	{"type", func(l *listing, a *allocation) []string { return []string{a.region.String() + " " + a.layout} }},
	{"region", func(_ *listing, a *allocation) []string { return []string{a.region.String()} }},
	{"chip", func(_ *listing, a *allocation) (keys []string) {
		for _, id := range a.devices {
			keys = append(keys, fmt.Sprintf("chip %d", id))
		}
		if keys == nil {
			keys = []string{"no known chip"}
		}
		return keys
	}},
	{"process", func(l *listing, a *allocation) []string { return []string{l.process(a.pid)} }},
}

// groupingOf is the grouping of a value of --by.
func groupingOf(by string) dumpGrouping {
	return groupingList[slices.IndexFunc(groupingList, func(g dumpGrouping) bool { return g.name == by })]
}

// process is what a process is called.
func (l *listing) process(pid int) string {
	for i := range l.snap.Processes {
		if p := &l.snap.Processes[i]; p.PID == pid && p.Exit == nil {
			return fmt.Sprintf("PID %d %s", pid, page.ProcessName(p))
		}
	}
	return fmt.Sprintf("PID %d", pid)
}

// dumpGroup is what is counted together.
type dumpGroup struct {
	Key string `json:"key"`
	// Buffers is how many there are, and Bytes what they take of all banks of their
	// chips.
	Buffers uint64 `json:"buffers"`
	Bytes   uint64 `json:"bytes"`
	// Statics are circular and dataflow buffers. The programs of StaticBytes use the
	// same space one after the other.
	Statics     uint64 `json:"statics"`
	StaticBytes uint64 `json:"static_bytes"`
	// OldestNs is the age of the oldest of which that is known.
	OldestNs uint64        `json:"oldest_ns"`
	PID      int           `json:"pid,omitempty"`
	Device   *int          `json:"device,omitempty"`
	Region   string        `json:"region,omitempty"`
	Stack    []event.Frame `json:"stack,omitempty"`
}

// grouped is a listing by something.
type grouped struct {
	*listing
	by     string
	groups []*dumpGroup
	cutOff int
}

// group counts the rows by something, the largest first.
func (l *listing) group(by string, n int) *grouped {
	g := groupingOf(by)
	type key struct {
		text string
		site *site
	}
	groups := make(map[key]*dumpGroup)
	for i := range l.rows {
		a := &l.rows[i]
		keys := g.keys(l, a)
		for j, text := range keys {
			k := key{text: text}
			if by == "stack" {
				k.site = a.site
			}
			to := groups[k]
			if to == nil {
				to = &dumpGroup{Key: text}
				switch {
				case by == "stack":
					to.Stack = a.stack.Frames()
				case by == "process":
					to.PID = a.pid
				case by == "type":
					to.Region = a.region.String()
				case by == "chip" && len(a.devices) > 0:
					to.Device = &a.devices[j]
				}
				groups[k] = to
			}
			to.add(a, uint64(len(keys)))
		}
	}
	list := slices.SortedFunc(maps.Values(groups), func(a, b *dumpGroup) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.StaticBytes, a.StaticBytes),
			cmp.Compare(b.Buffers+b.Statics, a.Buffers+a.Statics), cmp.Compare(a.Key, b.Key), page.CompareFrames(a.Stack, b.Stack))
	})
	cut := 0
	if n > 0 && n < len(list) {
		cut = len(list) - n
	}
	return &grouped{l, by, list, cut}
}

// add counts a row that is in so many groups.
func (g *dumpGroup) add(a *allocation, among uint64) {
	bytes := a.taken() / among
	if a.static != nil {
		g.Statics++
		g.StaticBytes += bytes
	} else {
		g.Buffers++
		g.Bytes += bytes
	}
	if !a.before {
		g.OldestNs = max(g.OldestNs, a.age())
	}
}

// groupColumns are the columns of a group with circular buffers; what it is of follows.
const groupColumns = 2*sizeColumns + 6 + 10 + 9 + 2

// writeText writes a line for each group, with the calls of a stack below.
func (g *grouped) writeText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, g.others)
	if g.all == 0 {
		layout.Write(out, 0, page.NoStyle, g.nothing())
		return out.Flush()
	}
	var bytes, statics uint64
	for _, one := range g.groups {
		bytes += one.Bytes
		statics += one.Statics
	}
	few := layout.Width > 0 && layout.Width < groupColumns+page.LeastBeside
	columns := func(bytes, part, buffers, staticBytes, count string) string {
		line := page.Right(bytes, sizeColumns)
		if !few {
			line += page.Right(part, 6)
		}
		line += page.Right(buffers, 10)
		if statics == 0 {
			return line
		}
		if line += page.Right(staticBytes, sizeColumns); !few {
			line += page.Right(count, 9)
		}
		return line
	}
	layout.WriteHead(out, columns("bytes", "", "buffers", "CBs, DFBs", ""), "  "+g.by)
	for _, one := range g.groups[:len(g.groups)-g.cutOff] {
		line := columns(page.Bytes(one.Bytes), page.Percent(one.Bytes, bytes), fmt.Sprint(one.Buffers), page.Bytes(one.StaticBytes), fmt.Sprint(one.Statics))
		indent := layout.Beside(out, line+"  ", page.NoStyle, layout.Separated(one.Key)) + 2
		if g.by == "stack" {
			for _, call := range page.Callers(one.Stack) {
				layout.Write(out, indent, page.Dim, call)
			}
		}
	}
	if g.cutOff > 0 {
		fmt.Fprintf(out, "\nand %s more of %d: -n 0 lists all\n", page.Grouped(g.cutOff), len(g.groups))
	}
	return out.Flush()
}
