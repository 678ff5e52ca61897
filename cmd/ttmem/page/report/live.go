package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
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
	if r.most.live == 0 {
		r.line()
		r.line(r.Paint(page.Bold, "Live "+r.end), r.Paint(page.Dim, ", of "+page.Count(uint64(len(list)), "process")+": ttmem dump lists it"))
		return
	}
	slices.SortStableFunc(list, func(a, b *memory.Process) int { return cmp.Compare(bytes(b), bytes(a)) })
	r.line()
	r.line(r.Paint(page.Bold, "Live "+r.end), r.Paint(page.Dim, about))
	for _, p := range list[:min(len(list), r.most.live)] {
		items := page.Each(p.Live, func(l memory.RegionTotal) string {
			return fmt.Sprintf("%s %s (%s)", l.Region, page.Bytes(l.AllocatedBytes), page.Count(l.Buffers, "buffer"))
		})
		head := " " + page.Right(fmt.Sprint(p.PID), processColumns) + "  "
		if user := r.users[p.PID]; user != "" {
			head += user + "  "
		}
		r.items(head, page.Width(head), page.NoStyle, items)
		if list, others := liveSources(p.Live); r.most.places > 0 && (others.Stacks > 0 || slices.ContainsFunc(list, func(s *source) bool { return s.Stack != nil || s.BeforeAttach })) {
			r.sources(list, others, r.most.places, 0, page.Bytes)
		}
	}
	if hidden := len(list) - r.most.live; hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

// liveSources returns the places that allocated the memory of regions, and the sum of the places
// that are not kept apart.
func liveSources(regions []memory.RegionTotal) (_ []*source, others memory.Holder) {
	var list []*source
	for i := range regions {
		l, region := &regions[i], ""
		if len(regions) > 1 {
			region = l.Region
		}
		unknown := memory.Holder{Bytes: l.AllocatedBytes, Count: l.Buffers}
		for _, h := range l.Holders {
			unknown.Bytes, unknown.Count = unknown.Bytes-min(h.Bytes, unknown.Bytes), unknown.Count-min(h.Count, unknown.Count)
			if h.Stacks > 0 {
				others.Bytes, others.Count, others.Stacks = others.Bytes+h.Bytes, others.Count+h.Count, others.Stacks+h.Stacks
				continue
			}
			list = append(list, newSource(h, event.NotStatic, region))
		}
		if unknown.Count > 0 {
			list = append(list, newSource(unknown, event.NotStatic, region))
		}
	}
	return folded(list, true), others
}
