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

// A row is a line of what a peak was made of.
type row struct {
	key string
	// count is how many buffers, or circular buffers; 0 if that is not known.
	count, bytes uint64
	// programs are the bytes of each program, of which bytes is the most; nil where the
	// row is of buffers.
	programs map[program]uint64
	// pid and callers are those of rows by stack; pid is 0 for other users.
	pid     int
	callers []string
}

type program struct {
	pid int
	id  uint64
}

// A part is what one call site had at a peak: buffers, or what it placed for a program.
type part struct {
	alloc.Row
	memory.Amount
	program *program // nil: buffers
}

// parts are the buffers of a peak, and what was placed for programs.
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

// A rowKey tells rows apart. Stacks are one where they differ in nothing that is
// shown: an operation that allocates in two places has one row.
type rowKey struct {
	text, callers string
	pid           int
}

// rows are parts by what they are counted as, most first, and what other users had. Of several
// programs in one row, which use the same space, it is the one that has most.
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

// key is what an allocation is counted as.
func (p *Page) key(a *alloc.Row) string {
	if p.By != "chip" {
		return alloc.GroupingOf(p.By).Keys(p.names, a)[0]
	}
	// the peak is of one chip: the others that share a buffer matter
	switch {
	case a.Region == event.CB:
		return "each chip's own"
	case len(a.Devices) == 1:
		return "this chip alone"
	}
	return page.Chips(a.Devices)
}
