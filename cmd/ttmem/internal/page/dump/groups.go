package dump

import (
	"bufio"
	"io"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// Groups is a list by group.
type Groups struct {
	*List
	table.Table
	limit int // maximum number of listed groups; 0: all
}

// The measures of a group: its buffers, its circular and dataflow buffers, and the padding of its buffers.
const (
	buffers = iota
	statics
	padding
	measures
)

// Group counts the rows by a value of --by, the largest first.
func (l *List) Group(by string, n int) *Groups {
	g := &Groups{l, table.Table{Names: &l.Namer, By: by}, n}
	for _, a := range l.rows() {
		one := *a
		one.Amounts = make([]memory.Amount, measures)
		amount := memory.Amount{Count: 1, Bytes: a.TotalBytes()}
		if a.Static != nil {
			one.Amounts[statics] = amount
		} else {
			one.Amounts[buffers] = amount
			one.Amounts[padding].Bytes = a.Buffer.PaddingIn(amount.Bytes)
			one.Mix.Add(a.Class(), 1)
		}
		if !a.BeforeAttach {
			one.OldestNs = a.Age()
		}
		one.OwnerClass, one.Buffer = a.Class(), nil
		if by == "stack" {
			one.Owner = memory.Owner{} // a call stack is one group
		}
		g.Add(&one, memory.StackID(a.Stack))
	}
	return g
}

// groupColumns are the columns of groups.
func (g *Groups) groupColumns(whole uint64) table.Columns {
	hasStatics := func(r *alloc.Row) bool { return r.Amounts[statics].Count > 0 }
	return table.Columns{
		table.Key,
		table.Count("buffers", "number of buffers", buffers),
		table.Bytes("bytes", "size of the buffers in all banks of their chips", buffers).Shown("bytes", page.SizeColumns, table.AsBytes(buffers, page.Bytes)),
		table.Share("", 6, buffers, whole).IfRoom(),
		table.Text("buffers", 10, table.AsCount(buffers)),
		table.Bytes("padding_bytes", "the part of the bytes that is padding of tiles, as far as the shapes of tensors are known", padding).OrNone().
			Shown("padding", page.SizeColumns, table.AsBytes(padding, page.Bytes)).IfRoom().IfAny(func(r *alloc.Row) bool { return r.Amounts[padding].Bytes > 0 }),
		table.Count("statics", "number of circular and dataflow buffers", statics),
		table.Bytes("static_bytes", "their size; programs use the same space one after the other", statics).
			Shown("CBs, DFBs", page.SizeColumns, table.AsBytes(statics, page.Bytes)).IfAny(hasStatics),
		table.Text("", 9, table.AsCount(statics)).IfRoom().IfAny(hasStatics),
		table.Oldest,
		g.host(),
		map[string]table.Column{"process": table.PID, "chip": table.Device, "type": table.Region, "stack": table.Stack}[g.By], table.MixClass,
	}
}

// host is the memory of a process on the host.
func (g *Groups) host() table.Column {
	bytes := func(r *alloc.Row) uint64 {
		if g.By != "process" {
			return 0
		}
		return g.Host(r.PID).ResidentBytes
	}
	return table.Optional("host_bytes", "by process: its memory on the host, if it was sampled", bytes).
		Shown("host", page.SizeColumns, func(r *alloc.Row) string {
			if bytes(r) == 0 {
				return ""
			}
			return page.Bytes(bytes(r))
		}).IfRoom().IfAny(func(r *alloc.Row) bool { return bytes(r) > 0 })
}

// group is allocations that are counted together.
type group struct{}

// Columns are those of all groupings.
func (group) Columns() table.Columns {
	return append((&Groups{}).groupColumns(0), table.PID.OrNone(), table.Device, table.Region.OrNone(), table.Stack)
}

// WriteText writes a line for each group; the calls of a stack are below it.
func (g *Groups) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, g.Others)
	if g.All == 0 {
		layout.Write(out, 0, page.NoStyle, g.nothing())
		return out.Flush()
	}
	rows := g.Table.Rows(false, nil)
	(&table.List{
		Columns: g.groupColumns(alloc.Total(rows).Bytes), Rows: rows, Limit: g.limit, Head: g.By, Title: g.Title,
	}).Write(out, layout)
	return out.Flush()
}

// Document returns the JSON document.
func (g *Groups) Document() any {
	shown, omitted := page.First(g.Table.Rows(false, nil), g.limit)
	return &GroupsDocument{head: g.head(omitted), By: g.By, Groups: table.Objects[group](g.groupColumns(0), shown)}
}
