package peak

import (
	"bufio"
	"slices"

	"ttmem/aggregate/advise"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// unused is what a line holds at the peak after its last use, or never uses: see ttmem advise.
//
//schema:unused_at_peak
type unused struct {
	PID   int    `json:"pid" user:"user"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
	// LastUse is the operation that uses one of the buffers last; left out if they are never used.
	LastUse string `json:"last_use,omitempty"`
	// Runs is the most runs of programs between the last use and the peak.
	Runs uint32 `json:"runs"`
	of   name.Name
}

// unusedAt is what is held after its last use at a peak, where the advice is about that moment.
func (p *Page) unusedAt(c *chipsPeak) (list []unused) {
	if p.Advice == nil {
		return nil
	}
	for _, a := range p.Advice.Peaks {
		if a.Region != c.Region || a.PeakNs != c.TimeNs || !slices.Contains(a.Devices, c.Device) {
			continue
		}
		for _, l := range a.Lines {
			one := unused{PID: a.PID, Count: l.Count, Bytes: l.PerBank * a.Banks, Runs: l.Runs, of: name.Of(l.Stack.Frames())}
			if c.Region == event.L1 {
				one.Bytes = l.PerBank
			}
			if one.Name = one.of.String(); !l.Unused {
				one.LastUse = nameOf(l)
			}
			list = append(list, one)
		}
	}
	return list
}

// nameOf is the operation that uses the buffers of a line last.
func nameOf(l *advise.Line) string {
	if text := name.Of(l.LastUse.Frames()).String(); text != "" {
		return text
	}
	return "(no call stack)"
}

// below writes below a row who holds its buffers and, below the first row of each line, what is not used any more.
func (p *Page) below(out *bufio.Writer, layout page.Layout, c *chipsPeak) func(int, *alloc.Row) {
	held, list := table.Held(out, layout), p.unusedAt(c)
	if p.By != "stack" {
		return held
	}
	return func(indent int, r *alloc.Row) {
		held(indent, r)
		i := slices.IndexFunc(list, func(u unused) bool { return r.Site != nil && u.of == r.Name && u.PID == r.PID })
		if i < 0 || r.Region == event.CB {
			return
		}
		text := "never used"
		if u := &list[i]; u.LastUse != "" {
			text = "not used after " + layout.Separated(u.LastUse)
		}
		layout.Write(out, indent+2, page.Yellow, c.format(list[i].Bytes)+" "+text)
		list = slices.Delete(list, i, i+1)
	}
}
