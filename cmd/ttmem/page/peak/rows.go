package peak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row is a line of what a peak was made of.
type row struct {
	key string
	// count is how many buffers, or circular buffers.
	count, bytes uint64
	// programs are the bytes of each program, of which bytes is the most; nil where the
	// row is of buffers.
	programs map[program]uint64
	// pid and callers are those of rows by stack.
	pid     int
	callers []string
}

type program struct {
	pid int
	id  uint64
}

// rows groups what a peak was made of.
type rows struct {
	page  *Page
	index map[rowKey]int
	list  []row
}

// A rowKey tells rows apart. Stacks are one where they differ in nothing that is
// shown: an operation that allocates in two places has one row.
type rowKey struct {
	text, callers string
	pid           int
}

// row is the one for what an allocation stands for.
func (r *rows) row(a *alloc.Row, stack *event.Stack) *row {
	a.Site = r.page.names.Site(stack)
	k := rowKey{text: r.page.key(a)}
	var calls []string
	if r.page.By == "stack" {
		calls = page.Callers(a.Site.Stack.Frames())
		k.pid, k.callers = a.PID, strings.Join(calls, "\n")
	}
	at, ok := r.index[k]
	if !ok {
		at = len(r.list)
		r.index[k] = at
		r.list = append(r.list, row{key: k.text, pid: k.pid, callers: calls})
	}
	return &r.list[at]
}

// key is what an allocation is counted as.
func (p *Page) key(a *alloc.Row) string {
	switch p.By {
	case "chip": // the peak is of one chip: the others that share a buffer matter
		switch {
		case a.Region == event.CB:
			return "each chip's own"
		case len(a.Devices) == 1:
			return "this chip alone"
		}
		return page.Chips(a.Devices)
	case "process":
		return p.process(a.PID)
	}
	grouping := alloc.GroupingOf(p.By)
	return grouping.Keys(p.names, a)[0]
}

// process is what a process is called, also one that ended.
func (p *Page) process(pid int) string {
	name := ""
	for i := range p.Snap.Processes {
		if one := &p.Snap.Processes[i]; one.PID == pid && (name == "" || one.Exit == nil) {
			name = " " + page.ProcessName(one)
		}
	}
	return fmt.Sprintf("PID %d%s", pid, name)
}

// sorted are the rows, most first.
func (r *rows) sorted() []row {
	slices.SortStableFunc(r.list, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return r.list
}

// holderRows are the buffers of a peak.
func (p *Page) holderRows(peak *aggregate.RegionPeak) []row {
	rows := &rows{page: p, index: make(map[rowKey]int)}
	for i := range peak.Holders {
		h := &peak.Holders[i]
		row := rows.row(&alloc.Row{
			Devices: h.Devices, Region: peak.Region, PID: h.PID, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(),
		}, h.Stack)
		row.count += h.Count
		row.bytes += h.Bytes
	}
	return rows.sorted()
}

// programRows are the circular buffers of a peak. Of several programs in one row, which
// use the same space, it is the one that has most.
func (p *Page) programRows(peak *aggregate.RegionPeak) []row {
	rows := &rows{page: p, index: make(map[rowKey]int)}
	for i := range peak.Programs {
		g := &peak.Programs[i]
		row := rows.row(&alloc.Row{
			Devices: []int{peak.Device}, Region: event.CB, PID: g.PID, BeforeAttach: g.BeforeAttach, Layout: g.Kind.String(),
		}, g.Stack)
		if row.programs == nil {
			row.programs = make(map[program]uint64)
		}
		program := program{g.PID, g.ProgramID}
		row.programs[program] += g.Bytes
		row.bytes = max(row.bytes, row.programs[program])
		row.count += g.Count
	}
	return rows.sorted()
}
