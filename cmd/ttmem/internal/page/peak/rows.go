package peak

import (
	"fmt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// rows groups parts, and adds the part of other users.
func (p *Page) rows(parts []*alloc.Row, others uint64, lines bool) []*alloc.Row {
	groups := p.table()
	for _, one := range parts {
		if p.By == "chip" {
			groups.AddTo(one, []string{sharedBy(one)})
			continue
		}
		if one.Owner.Path != "" || p.By != "stack" {
			one.Holders = nil // in the title
		}
		groups.Add(one, one.PID)
	}
	if others > 0 {
		other := table.Named(page.OtherUsers, memory.Amount{Bytes: others})
		groups.AddAs(other, other.Key, other.Look)
	}
	return groups.Rows(lines, nil)
}

func (p *Page) table() *table.Table { return &table.Table{Names: p.names, By: p.By} }

// sharedBy is the group of an allocation by chip. The peak is of one chip, but the other chips of a shared
// buffer matter.
func sharedBy(a *alloc.Row) string {
	switch {
	case a.Region == event.CB:
		return "each chip's own"
	case len(a.Devices) == 1:
		return "this chip alone"
	}
	return page.Chips(a.Devices)
}

// columns are the columns of a peak's contents. Processes and callers are of rows by stack.
func (p *Page) columns(noun string, whole uint64, format func(uint64) string) table.Columns {
	columns := table.Columns{
		table.Key,
		table.Bytes("bytes", "its bytes at the peak", 0).Shown("bytes", page.SizeColumns, table.AsBytes(0, format)),
		table.Share("% ", 6, 0, whole),
		table.Count("count", "number of buffers, or of circular buffers; 0 if it is not known", 0).Shown(noun, 10, func(r *alloc.Row) string {
			if r.Amounts[0].Count == 0 {
				return ""
			}
			return fmt.Sprint(r.Amounts[0].Count)
		}),
		table.MixClass,
	}
	if p.By == "stack" {
		return append(table.Columns{columns[0], table.PID.OrNone(), table.Callers}, columns[1:]...)
	}
	return columns
}

// holderFields are the fields of the memory of call stacks: of buffers, apart by who holds them, and of what
// the program that ran had.
func (p *Page) holderFields(program *uint64) table.Columns {
	fields := table.Columns{table.PID}
	if program == nil {
		fields = append(fields, table.Devices.OrNone(), table.Layout.OrNone())
	} else {
		fields = append(fields, table.Field("program_id", "the program", func(*alloc.Row) uint64 { return *program }), table.StaticKind)
	}
	fields = append(fields, table.BeforeAttach, table.Bytes("bytes", "its bytes at the peak", 0), table.Count("count", "number of buffers", 0), table.Owner, table.Tensor)
	return append(fields, table.Site(p.names)...)
}

// group is allocations that are counted together.
//
//schema:peak_group
type group struct{}

// Columns are those of all groupings.
func (group) Columns() table.Columns {
	return (&Page{Options: Options{By: "stack"}}).columns("", 0, nil)
}

// holder is the memory of one call stack: its buffers, apart by who holds them, or its memory for a program.
//
//schema:holder_at_peak
type holder struct{}

// Columns are those of buffers and of programs.
func (holder) Columns() table.Columns {
	p := &Page{names: &alloc.Namer{}}
	return append(p.holderFields(nil), table.Optional("program_id", "the program", func(*alloc.Row) uint64 { return 0 }), table.StaticKind.OrNone())
}
