package dump

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/uses"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// head is the common part of the output of `ttmem dump --json`.
type head struct {
	V int `json:"v"`
	page.Span
	// TimeNs is the listed moment, by CLOCK_MONOTONIC.
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	// Moments are the peaks of the regions, if --at peak lists several.
	Moments []Moment `json:"moments,omitempty"`
	// Omitted is the number of rows that -n leaves out.
	Omitted int `json:"omitted"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// A Moment is the time at which the regions of some chips are listed.
type Moment struct {
	Devices []int    `json:"devices"`
	Regions []string `json:"regions" schema:"region"`
	TimeNs  uint64   `json:"time_ns" wall:"wall_ns"`
}

// Document is the output of `ttmem dump --json`.
type Document struct {
	head
	Buffers table.Seq[buffer] `json:"buffers"`
	Statics table.Seq[static] `json:"statics"`
}

// GroupsDocument is the output of `ttmem dump --by WHAT --json`.
type GroupsDocument struct {
	head
	By     string                `json:"by"`
	Groups []table.Object[group] `json:"groups"`
}

func (l *List) head(omitted int) head {
	return head{V: 1, Span: l.Span, TimeNs: l.NowNs, Moments: l.Moments, Omitted: omitted, AllLosses: l.Losses, Notes: l.Notes}
}

// placed are the first fields of all allocations; table.Site follows.
var placed = slices.Concat(table.Columns{table.PID}, table.Alike(
	table.Devices,
	table.Field("chips", "number of chips, including those that are not selected", func(a *alloc.Row) int { return a.Chips }),
), table.Columns{
	table.Field("address", "", func(a *alloc.Row) uint64 { return a.Address }),
	table.Field("since_ns", "when it was allocated", func(a *alloc.Row) uint64 { return a.SinceNs }).WithWall("since_wall_ns"),
	table.If("age_ns", "how long it has been live; left out for an allocation from before the attach", func(a *alloc.Row) (uint64, bool) {
		return a.Age(), !a.BeforeAttach
	}),
}, table.Alike(table.BeforeAttach))

// of returns a field of a buffer.
func of[T any](key, about string, value func(*memory.Buffer) T) table.Column {
	return table.Field(key, about, func(a *alloc.Row) T { return value(a.Buffer) })
}

var bufferFields = slices.Concat(table.Columns{
	of("tid", "the thread", func(b *memory.Buffer) int32 { return b.TID }),
	of("comm", "the process's name", func(b *memory.Buffer) string { return b.Comm }),
}, table.Alike(table.Region.Values("banked_region"), table.Layout), table.Columns{
	of("buffer_id", "tt-metal's id", func(b *memory.Buffer) uint64 { return b.BufferID }),
	of("object", "the address of the Buffer in the process", func(b *memory.Buffer) uint64 { return b.Object }),
	of("tensor_bytes", "size of the tensor's values on each chip, without padding; left out if no owner with a shape is known", (*memory.Buffer).TensorBytes).OrNone(),
	of("size_bytes", "size of the data, with the padding of tiles", func(b *memory.Buffer) uint64 { return b.SizeBytes }),
	of("page_size_bytes", "size of a page", func(b *memory.Buffer) uint64 { return b.PageSizeBytes }),
	of("bytes_per_bank", "bytes that the allocator reserves in each bank", func(b *memory.Buffer) uint64 { return b.BytesPerBank }),
	of("banks", "banks with data of the buffer", func(b *memory.Buffer) uint16 { return b.DataBanks }),
	of("reserved_banks", "banks in which the allocator reserves bytes_per_bank", func(b *memory.Buffer) uint16 { return b.Banks }),
	of("data_bytes", "size of the data on each chip, in whole pages", func(b *memory.Buffer) uint64 { return b.DataBytes() }),
	table.Field("allocated_bytes", "bytes that the allocator reserves on each chip", (*alloc.Row).Bytes),
}, table.Alike(table.Optional("per_core", "on single cores", func(a *alloc.Row) bool { return a.Buffer.PerCore })), table.Columns{
	table.Optional("cores", "these cores, as x0, y0, x1, y1; left out if unknown", func(a *alloc.Row) [][4]uint16 { return page.Rectangles(a.Buffer.Cores()) }),
	table.Owner, table.Tensor,
	table.Optional("last_use", "the line and the operation of the latest run or transfer that used it; left out without a call stack", lastUse),
	table.Optional("last_use_ns", "when that was; left out if no use is recorded", func(a *alloc.Row) uint64 { return a.LastUse.TimeNs }).WithWall("last_use_wall_ns"),
	table.If("idle_ns", "how long before the moment", func(a *alloc.Row) (uint64, bool) { return a.Idle(), isUsed(a) }),
	table.If("idle_runs", "the process's runs of programs since then", func(a *alloc.Row) (uint64, bool) { return a.Runs, isUsed(a) }),
})

func lastUse(a *alloc.Row) string {
	if a.LastUse.By == nil {
		return ""
	}
	return name.Of(a.LastUse.By.Frames()).String()
}

// isUsed reports whether the latest use of a buffer is known.
func isUsed(a *alloc.Row) bool { return a.LastUse != (uses.Moment{}) }

var staticFields = table.Columns{
	table.Field("program_id", "the program", func(a *alloc.Row) uint64 { return a.Static.ProgramID }),
	table.StaticKind,
	table.Optional("global", "inside an L1 buffer", func(a *alloc.Row) bool { return a.Static.Global }),
	table.Field("bytes_per_core", "size on each of the cores", func(a *alloc.Row) uint64 { return a.BytesPerBank }),
	table.Field("cores", "its cores, as x0, y0, x1, y1", func(a *alloc.Row) [][4]uint16 { return page.Rectangles(a.Static.Cores) }),
}

// buffer is a live buffer.
//
//schema:buffer
type buffer struct{}

// Columns are those of buffers.
func (buffer) Columns() table.Columns {
	return slices.Concat(placed, table.Site(&alloc.Namer{}), bufferFields)
}

// static is a circular or dataflow buffer, or a scratchpad.
//
//schema:static
type static struct{}

// Columns are those of circular buffers.
func (static) Columns() table.Columns {
	return slices.Concat(placed, table.Site(&alloc.Namer{}), staticFields)
}

// list yields the rows that are selected.
func list[D table.Declaration](l *List, is func(*alloc.Row) bool, fields table.Columns) table.Seq[D] {
	fields = slices.Concat(placed, table.Site(&l.Namer), fields)
	return func(yield func(table.Object[D]) bool) {
		for _, a := range l.listed() {
			if is(a) && !yield(table.Object[D]{Columns: fields, Row: a}) {
				return
			}
		}
	}
}

// Document returns the JSON document.
func (l *List) Document() any {
	return &Document{
		l.head(l.cutOff),
		list[buffer](l, func(a *alloc.Row) bool { return a.Buffer != nil }, bufferFields),
		list[static](l, func(a *alloc.Row) bool { return a.Static != nil }, staticFields),
	}
}
