package diff

import (
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// Document is the output of `ttmem diff --json`.
type Document struct {
	V int  `json:"v"`
	A file `json:"a"`
	B file `json:"b"`
	// Totals are by chip and region, and Groups by --by.
	Totals []table.Object[total] `json:"totals"`
	By     string                `json:"by"`
	Groups []table.Object[group] `json:"groups"`
	// Same is the number of groups that are left out because they do not differ, Moved how many
	// of these have another line, and Omitted the number of groups that -n leaves out.
	Same    int `json:"same"`
	Moved   int `json:"moved,omitempty"`
	Omitted int `json:"omitted"`
}

// file is a moment of a recording, or of running processes.
//
//schema:diff_side
type file struct {
	// File is the recording; empty for running processes, which are in PIDs.
	File   string `json:"file"`
	PIDs   []int  `json:"pids,omitempty"`
	Moment string `json:"moment"`
	// TimeNs is left out for peaks, which are at different times.
	TimeNs uint64 `json:"time_ns,omitempty"`
	WallNs int64  `json:"wall_ns,omitempty"`
	page.Span
	memory.AllLosses
}

// Document returns the JSON document.
func (d *Difference) Document() any {
	of := func(s *Side) file {
		f := file{Moment: s.Moment, Span: s.Span, AllLosses: s.Losses}
		if s.Live {
			f.PIDs = s.PIDs
		} else {
			f.File = s.Path
		}
		if s.TimeNs > 0 {
			f.TimeNs, f.WallNs = s.TimeNs, s.Clock.Wall(s.TimeNs)
		}
		return f
	}
	doc := &Document{V: 1, A: of(d.a), B: of(d.b), By: d.by, Same: d.Same, Moved: d.Moved, Omitted: d.cutOff}
	doc.Totals, doc.Groups = table.Objects[total](totalFields, d.Totals), table.Objects[group](d.fields(), d.Groups)
	return doc
}

// amount is a number of buffers, and their bytes in all banks of all their chips.
type amount struct {
	Buffers uint64 `json:"buffers"`
	Bytes   uint64 `json:"bytes"`
}

func amountIn(key string, side int) table.Column {
	return table.Field(key, "its buffers and bytes in "+strings.ToUpper(key), func(r *alloc.Row) amount { return amount{r.Amounts[side].Count, r.Amounts[side].Bytes} })
}

var changeBytes = table.Field("change_bytes", "bytes in B minus bytes in A", Change)

var totalFields = table.Columns{table.Field("device", "the chip", func(r *alloc.Row) int { return r.Devices[0] }), table.Region, amountIn("a", inA), amountIn("b", inB), changeBytes}

// fields are the fields of the groups.
func (d *Difference) fields() table.Columns {
	fields := table.Columns{
		table.Key, table.Optional("static", "true for circular and dataflow buffers, whose programs use the same space in turn", isStatic),
		amountIn("a", inA), amountIn("b", inB), table.Field("change_buffers", "buffers in B minus buffers in A", changeBuffers), changeBytes,
	}
	if d.by != "stack" {
		return fields
	}
	return append(fields, table.Region, table.Optional("a_line", "the line of the innermost call in A, if it differs in B", func(r *alloc.Row) int { return r.ALine }),
		table.Class, table.Stack)
}

// total is the sum of one region of a chip.
type total struct{}

// Columns are those of totals.
func (total) Columns() table.Columns { return totalFields }

// group is buffers that are counted together.
type group struct{}

// Columns are those of all groupings.
func (group) Columns() table.Columns {
	columns := (&Difference{by: "stack"}).fields()
	for i := range columns {
		if columns[i].Key == "region" {
			columns[i] = columns[i].OrNone()
		}
	}
	return columns
}
