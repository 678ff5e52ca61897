package ops

import (
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// Document is the output of `ttmem ops --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V int `json:"v"`
	page.Span
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	// Operations are in order of headroom, the least first. Omitted is the number that -n leaves
	// out, and Forgotten the number of dropped call stacks.
	Operations []table.Object[operation] `json:"operations"`
	Omitted    int                       `json:"omitted"`
	Forgotten  uint64                    `json:"forgotten"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	shown, omitted := page.First(p.operations(), p.Limit)
	return &Document{
		V: 1, Span: p.Span, TimeNs: p.Snapshot.TimeNs, Operations: table.Objects[operation](p.fields(), shown), Omitted: omitted, Forgotten: p.forgotten,
		AllLosses: p.Losses(), Notes: page.WithOthers(p.Notes, p.Others),
	}
}

// operation is the runs of programs from one call site.
//
//schema:operation
type operation struct{}

// Columns are those of operations.
func (operation) Columns() table.Columns { return (&Page{names: &alloc.Namer{}}).fields() }
