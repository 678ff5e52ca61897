package peak

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row is a line of the contents of a peak.
type row struct {
	alloc.Look
	// count is the number of buffers, or of circular buffers; 0 if it is not known.
	count, bytes uint64
	// pid belongs to rows by stack; it is 0 for other users.
	pid     int
	holders alloc.Holders
	mix     alloc.Mix
}

// parts returns the buffers of a peak, for a grouping, and the memory of the program that ran.
func (p *Page) parts(peak *memory.RegionPeak, by string) (buffers, program []alloc.Part) {
	for i := range peak.Holders {
		h := &peak.Holders[i]
		holders := p.holders.Split(&h.Site, h.Amount, peak.TimeNs, peak.Region == event.L1)
		buffers = append(buffers, alloc.Split(alloc.Row{
			Devices: h.Devices, Region: peak.Region, PID: h.PID, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(), Site: p.names.Site(h.Stack),
		}, h.Amount, holders, by)...)
	}
	for i := range peak.Programs {
		g := &peak.Programs[i]
		program = append(program, alloc.Part{Row: alloc.Row{
			Devices: []int{peak.Device}, Region: event.CB, PID: g.PID, BeforeAttach: g.BeforeAttach, Layout: g.Kind.String(), Site: p.names.Site(g.Stack),
		}, Amount: memory.Amount{Count: g.Count, Bytes: g.Bytes}})
	}
	return buffers, program
}

// rows adds up parts that look alike or have the same key, the largest first, and adds the part of
// other users. If lines is true, the call sites of a line may share a row.
func (p *Page) rows(parts []alloc.Part, others uint64, lines bool) (rows []*row) {
	for i := range parts {
		one := &parts[i]
		r := &row{count: one.Count, bytes: one.Amount.Bytes}
		r.mix.Add(one.Class(), one.Count)
		if p.By == "stack" {
			if r.pid, r.Look = one.PID, p.names.Look(&one.Row, one.PID); one.Owner.Path == "" {
				r.holders = one.Holders
			}
		} else {
			r.Text = p.key(&one.Row)
		}
		rows = append(rows, r)
	}
	rows = alloc.Fold(rows, lines)
	if others > 0 {
		rows = append(rows, &row{Look: alloc.Look{Key: alloc.Key{Text: page.OtherUsers}}, bytes: others})
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.count, a.count), cmp.Compare(a.Text, b.Text))
	})
	return rows
}

// Add adds a row.
func (r *row) Add(other *row) {
	r.count, r.bytes = r.count+other.count, r.bytes+other.bytes
	r.holders.Add(other.holders)
	r.mix.AddAll(other.mix)
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
