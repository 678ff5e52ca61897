// Package ops lists the operations that ran programs, by the room that they left in L1.
package ops

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// Options configure a page of operations.
type Options struct {
	// Of is their origin and range: "in model.ttmem".
	Of string
	// Span is the range in ns.
	Span page.Span
	// Limit is the maximum number of operations to show; 0: all.
	Limit  int
	Filter alloc.Filter
	Rules  *name.Rules
	// Others describes the memory of other users; "" if all of it is shown.
	Others string
	Notes  []string
	// Snapshot is the snapshot at the end.
	Snapshot *memory.Snapshot
}

// Page is what a page of operations shows.
type Page struct {
	Options
	names *alloc.Namer
	list  []memory.Operation
	// temporary are the temporary allocations of call sites: see package churn.
	temporary []memory.SiteAmount
	// forgotten is the number of dropped operations.
	forgotten uint64
}

// New returns a page without operations.
func New(o Options) *Page {
	return &Page{Options: o, names: &alloc.Namer{Rules: o.Rules, Filter: o.Filter}}
}

// Add adds the operations of a state, if their peak is on a selected chip.
func (p *Page) Add(s *aggregate.State, of func(device int, region event.Region) bool) {
	list, others := s.Operations()
	for _, op := range list {
		selected := of(op.Peak.Device, event.L1)
		if op.Peak.TimeNs == 0 { // it only failed
			selected = len(op.Devices) == 0 || slices.ContainsFunc(op.Devices, func(id int) bool { return of(id, event.L1) })
		}
		if selected {
			p.list = append(p.list, op)
		}
	}
	p.forgotten = max(p.forgotten, others)
	p.temporary, _ = s.Temporary()
}

// operations returns the selected ones by name, the tightest first.
func (p *Page) operations() []*alloc.Row {
	p.names.Snap = p.Snapshot
	var sums table.Table
	for i := range p.list {
		op := &p.list[i]
		if row, ok := p.names.Row(alloc.Row{PID: op.PID, Devices: op.Devices, Region: event.CB, Operation: op}, op.Stack); ok {
			look := row.Look
			look.Key, look.Callers = p.key(&row), nil
			sums.AddAs(&row, look.Key, look)
		}
	}
	rows := sums.Rows(false, func(a, b *alloc.Row) int {
		x, y := a.Operation, b.Operation
		return cmp.Or(analyze.ComparePressure(&x.Peak, &y.Peak), cmp.Compare(y.Runs, x.Runs), cmp.Compare(a.Text, b.Text), cmp.Compare(x.PID, y.PID))
	})
	temporary := p.temporaries()
	for _, r := range rows {
		r.Amounts = []memory.Amount{temporary[r.Key]}
	}
	return rows
}

// temporaries returns the temporary allocations, on all chips, by the key of their operation.
func (p *Page) temporaries() map[alloc.Key]memory.Amount {
	sums := make(map[alloc.Key]memory.Amount)
	for i := range p.temporary {
		s := &p.temporary[i]
		if row, ok := p.names.Row(alloc.RowOf(&s.Site), s.Stack); ok {
			key := p.key(&row)
			sum := sums[key]
			sum.Add(memory.Amount{Count: s.Count, Bytes: s.Bytes * uint64(max(1, len(s.Devices)))})
			sums[key] = sum
		}
	}
	return sums
}

// key is the same for the rows of an operation of a process.
func (p *Page) key(r *alloc.Row) alloc.Key {
	return alloc.Key{Text: p.names.Title(r, " · "), Apart: fmt.Sprint(r.PID)}
}

// Losses returns the lost events that make the operations doubtful.
func (p *Page) Losses() memory.AllLosses { return p.Snapshot.Losses(false, p.Filter.PIDs) }
