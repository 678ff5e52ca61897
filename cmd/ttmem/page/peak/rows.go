package peak

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row is a line of the contents of a peak.
type row struct {
	key string
	// count is the number of buffers, or of circular buffers; 0 if it is not known.
	count, bytes uint64
	// programs are the bytes of each program, and bytes is the most of them; nil for a row of
	// buffers.
	programs map[program]uint64
	// pid and callers belong to rows by stack; pid is 0 for other users.
	pid     int
	callers []string
}

type program struct {
	pid int
	id  uint64
}

// A part is the memory of one call site at a peak: buffers, or memory that it placed for a
// program.
type part struct {
	alloc.Row
	memory.Amount
	program *program // nil: buffers
}

// parts returns the buffers of a peak, and the memory placed for programs.
func (p *Page) parts(peak *memory.RegionPeak) (buffers, programs []part) {
	for i := range peak.Holders {
		h := &peak.Holders[i]
		buffers = append(buffers, part{alloc.Row{
			Devices: h.Devices, Region: peak.Region, PID: h.PID, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(), Site: p.names.Site(h.Stack),
		}, h.Amount, nil})
	}
	for i := range peak.Programs {
		g := &peak.Programs[i]
		programs = append(programs, part{alloc.Row{
			Devices: []int{peak.Device}, Region: event.CB, PID: g.PID, BeforeAttach: g.BeforeAttach, Layout: g.Kind.String(), Site: p.names.Site(g.Stack),
		}, memory.Amount{Count: g.Count, Bytes: g.Bytes}, &program{g.PID, g.ProgramID}})
	}
	return buffers, programs
}

// A rowKey identifies a row. Stacks share a row if nothing that is shown differs: an operation
// that allocates in two places has one row.
type rowKey struct {
	text, callers string
	pid           int
}

// rows adds up parts with the same key, the largest first, and adds the part of other users.
// Programs in one row use the same space, so the one with the most counts.
func (p *Page) rows(parts []part, others uint64) (rows []row) {
	index := make(map[rowKey]int)
	for i := range parts {
		one := &parts[i]
		k := rowKey{text: p.key(&one.Row)}
		var calls []string
		if p.By == "stack" {
			calls = page.Callers(one.Stack.Frames())
			k.pid, k.callers = one.PID, strings.Join(calls, "\n")
		}
		at, ok := index[k]
		if !ok {
			at = len(rows)
			index[k] = at
			rows = append(rows, row{key: k.text, pid: k.pid, callers: calls})
		}
		row := &rows[at]
		row.count += one.Count
		if one.program == nil {
			row.bytes += one.Amount.Bytes
			continue
		}
		if row.programs == nil {
			row.programs = make(map[program]uint64)
		}
		row.programs[*one.program] += one.Amount.Bytes
		row.bytes = max(row.bytes, row.programs[*one.program])
	}
	if others > 0 {
		rows = append(rows, row{key: page.OtherUsers, bytes: others})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return rows
}

// key returns the group of an allocation.
func (p *Page) key(a *alloc.Row) string {
	if p.By != "chip" {
		return alloc.GroupingOf(p.By).Keys(p.names, a)[0]
	}
	// the peak is of one chip, but the other chips of a shared buffer matter
	switch {
	case a.Region == event.CB:
		return "each chip's own"
	case len(a.Devices) == 1:
		return "this chip alone"
	}
	return page.Chips(a.Devices)
}
