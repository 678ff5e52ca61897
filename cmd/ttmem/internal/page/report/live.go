package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// live writes the live memory of processes, the largest first.
func (r *report) live() {
	var list []*memory.Process
	bytes := func(p *memory.Process) (sum uint64) {
		for _, l := range p.Live {
			sum += l.AllocatedBytes
		}
		return sum
	}
	about := ", total over all banks"
	for i := range r.snap.Processes {
		if p := &r.snap.Processes[i]; len(p.Live) > 0 {
			list = append(list, p)
			if len(p.Devices) > 1 {
				about = ", total over all banks of all chips"
			}
		}
	}
	if len(list) == 0 {
		if r.Own && r.PID == 0 && r.snap.LostEvents == 0 {
			r.line("Your processes have nothing allocated.")
		}
		return
	}
	slices.SortStableFunc(list, func(a, b *memory.Process) int { return cmp.Compare(bytes(b), bytes(a)) })
	r.line()
	r.line(r.Paint(page.Bold, "Live "+r.end), r.Paint(page.Dim, about))
	for _, p := range list[:min(len(list), shownLive)] {
		items := page.Each(p.Live, func(l memory.RegionTotal) string {
			return fmt.Sprintf("%s %s (%s)", l.Region, page.Bytes(l.AllocatedBytes), page.Count(l.Buffers, "buffer"))
		})
		head := " " + page.Right(fmt.Sprint(p.PID), processColumns) + "  "
		if user := r.users[p.PID]; user != "" {
			head += user + "  "
		}
		r.items(head, page.Width(head), page.NoStyle, items)
		r.sources(r.liveSources(p), min(shownPlaces, allPlaces/min(len(list), shownLive)), 0, page.Bytes)
	}
	if hidden := len(list) - shownLive; hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

// liveSources returns the call sites of a process's live buffers; none if nothing is known of them.
func (r *report) liveSources(p *memory.Process) []*alloc.Row {
	list, known := newSources(), false
	for _, s := range r.State.CallSites() {
		if s.PID != p.PID || s.Count == 0 || s.Region == event.CB {
			continue
		}
		known = known || s.Stack != nil || s.BeforeAttach
		mention := ""
		if len(p.Live) > 1 {
			mention = s.Region.String()
		}
		holders := r.holders.Split(&s.Site, s.Amount, analyze.Now, false)
		for i := range holders {
			holders[i].Bytes *= uint64(len(s.Devices))
		}
		all := s.Amount
		all.Bytes *= uint64(len(s.Devices))
		list.add(&s.Site, all, mention, holders)
	}
	if !known {
		return nil
	}
	return list.Rows(true, nil)
}
