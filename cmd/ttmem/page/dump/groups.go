package dump

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// group is allocations that are counted together.
type group struct {
	Key string `json:"key"`
	// Buffers is the number of buffers, and Bytes their size in all banks of their chips.
	Buffers uint64 `json:"buffers"`
	Bytes   uint64 `json:"bytes"`
	// Statics are circular and dataflow buffers. The programs of StaticBytes use the
	// same space one after the other.
	Statics     uint64 `json:"statics"`
	StaticBytes uint64 `json:"static_bytes"`
	// OldestNs is the largest known age.
	OldestNs uint64        `json:"oldest_ns"`
	PID      int           `json:"pid,omitempty" user:"user"`
	Device   *int          `json:"device,omitempty"`
	Region   string        `json:"region,omitempty" schema:"region"`
	Stack    []event.Frame `json:"stack,omitempty"`
	// Class is what all of the buffers are for; left out if they differ, or if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	mix   alloc.Mix
}

// Groups is a list by group.
type Groups struct {
	*List
	by     string
	groups []*group
	limit  int // maximum number of listed groups; 0: all
}

// Group counts the rows by a value of --by, the largest first.
func (l *List) Group(by string, n int) *Groups {
	g := alloc.GroupingOf(by)
	type key struct {
		text string
		site *alloc.Site
	}
	var groups page.Groups[key, group]
	for _, a := range l.Rows {
		keys := g.Keys(&l.Namer, a)
		for j, text := range keys {
			k := key{text: text}
			if by == "stack" {
				k.site = a.Site
			}
			one, found := groups.Of(k)
			if !found {
				one.Key = text
				switch {
				case by == "stack":
					one.Stack = a.Stack.Frames()
				case by == "process":
					one.PID = a.PID
				case by == "type":
					one.Region = a.Region.String()
				case by == "chip" && len(a.Devices) > 0:
					one.Device = &a.Devices[j]
				}
			}
			one.add(a, uint64(len(keys)))
		}
	}
	for _, one := range groups.List {
		one.Class = one.mix.Class().String()
	}
	slices.SortFunc(groups.List, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.StaticBytes, a.StaticBytes),
			cmp.Compare(b.Buffers+b.Statics, a.Buffers+a.Statics), cmp.Compare(a.Key, b.Key), page.CompareFrames(a.Stack, b.Stack))
	})
	return &Groups{l, by, groups.List, n}
}

// add counts a row that is in this many groups.
func (g *group) add(a *alloc.Row, among uint64) {
	bytes := a.TotalBytes() / among
	if a.Static != nil {
		g.Statics++
		g.StaticBytes += bytes
	} else {
		g.mix.Add(a.Class(), 1)
		g.Buffers++
		g.Bytes += bytes
	}
	if !a.BeforeAttach {
		g.OldestNs = max(g.OldestNs, a.Age())
	}
}

// groupColumns are the columns of a group. Those of circular buffers appear only in some lists.
var groupColumns = page.Columns{page.SizeColumns, 6, 10, page.SizeColumns, 9}

// WriteText writes a line for each group; the calls of a stack are below it.
func (g *Groups) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, g.Others)
	if g.All == 0 {
		layout.Write(out, 0, page.NoStyle, g.nothing())
		return out.Flush()
	}
	var bytes, statics uint64
	for _, one := range g.groups {
		bytes += one.Bytes
		statics += one.Statics
	}
	columns := slices.Clone(groupColumns)
	if layout.Width > 0 && layout.Width < columns.Width()+2+page.LeastBeside {
		columns[1], columns[4] = 0, 0 // the share and the number of buffers
	}
	if statics == 0 {
		columns = columns[:3]
	}
	layout.WriteHead(out, columns.Line("bytes", "", "buffers", "CBs, DFBs", ""), "  "+g.by)
	shown, omitted := page.First(g.groups, g.limit)
	for _, one := range shown {
		line := columns.Line(page.Bytes(one.Bytes), page.Percent(one.Bytes, bytes), fmt.Sprint(one.Buffers), page.Bytes(one.StaticBytes), fmt.Sprint(one.Statics))
		title := layout.Separated(one.Key)
		if g.by != "stack" && g.by != "class" {
			title += one.mix.Text()
		}
		indent := layout.Beside(out, line+"  ", page.NoStyle, title) + 2
		if g.by == "stack" {
			for _, call := range page.Callers(one.Stack) {
				layout.Write(out, indent, page.Dim, call)
			}
		}
	}
	if omitted > 0 {
		fmt.Fprintf(out, "\nand %s more of %d: -n 0 lists all\n", page.Grouped(omitted), len(g.groups))
	}
	return out.Flush()
}
