package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// shownPlaces is how many call stacks of the live or unfreed memory of a process are
// shown.
const shownPlaces = 3

const (
	// leastName is the least useful width of the name of a place.
	leastName = 40
	// belowColumns is the indent of a name on its own line.
	belowColumns = 18
)

// A memory is the memory of a process at one time, in several regions.
type memory struct {
	process *aggregate.Process
	// when is "" if it is the time of the section's title.
	when    string
	regions []aggregate.RegionTotal
}

// live writes the live memory of processes, and the memory that was unfreed when they closed a
// device or ended.
func (r *report) live() {
	if len(r.snap.Devices) == 0 {
		return
	}
	var live, freed []memory
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		if len(p.Live) > 0 {
			live = append(live, memory{p, "", p.Live})
		}
		for rest := p.Unfreed; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Reason == rest[0].Reason {
				n++
			}
			freed = append(freed, memory{p, freedWhen(rest[0].Reason) + ": ", rest[:n]})
			rest = rest[n:]
		}
	}
	r.section("Live "+r.end, live)
	r.section("Not freed", freed)
	if len(live)+len(freed) == 0 {
		r.nothingLive()
	}
}

// nothingLive reports that nothing is live, and what that means. It does not speak of processes
// that were not seen or are no longer known.
func (r *report) nothingLive() {
	if r.snap.LostEvents() > 0 || r.forgotten() > 0 || len(r.snap.Processes) == 0 && !r.Own {
		return
	}
	r.line()
	switch {
	case !r.Own && !slices.ContainsFunc(r.snap.Processes, allocated):
		r.line("Nothing was allocated.")
	case r.Own:
		r.line("Your processes have nothing allocated.")
	case r.Live:
		r.line("Nothing is allocated.")
	default:
		r.line(r.Paint(page.Green, r.Pick("✓ ", "")), "Every buffer was freed.")
	}
}

// allocated reports whether the process ever had a buffer.
func allocated(p aggregate.Process) bool {
	return slices.ContainsFunc(p.Devices, func(d aggregate.Device) bool {
		for region := range event.Region(event.BankedRegions) {
			if d.Regions.Banked(region).PeakBytes > 0 {
				return true
			}
		}
		return false
	})
}

// freedWhen is the reason in words.
func freedWhen(reason string) string {
	if reason == event.ReasonDeviceClose.String() {
		return "when its device closed"
	}
	return "when it ended"
}

// holdings writes a section of holdings, the largest first.
func (r *report) section(title string, list []memory) {
	if len(list) == 0 {
		return
	}
	sum := make(map[*aggregate.Process]uint64)
	for _, h := range list {
		for _, l := range h.regions {
			sum[h.process] += l.AllocatedBytes
		}
	}
	about := ", total over all banks"
	if slices.ContainsFunc(list, func(h memory) bool { return len(h.process.Devices) > 1 }) {
		about += " of all chips"
	}
	r.line()
	r.line(r.Paint(page.Bold, title), r.Paint(page.Dim, about))
	slices.SortStableFunc(list, func(a, b memory) int { return cmp.Compare(sum[b.process], sum[a.process]) })
	var last *aggregate.Process
	for _, h := range list[:min(len(list), shownProcesses)] {
		pid := ""
		if h.process != last {
			pid = fmt.Sprint(h.process.PID)
		}
		last = h.process
		var items []string
		for _, l := range h.regions {
			items = append(items, fmt.Sprintf("%s %s (%s)", l.Region, page.Bytes(l.AllocatedBytes), page.Count(l.Buffers, "buffer")))
		}
		head := " " + page.Right(pid, processColumns) + "  "
		r.items(head+h.when, page.Width(head), page.NoStyle, items)
		r.sources(h.regions)
	}
	if hidden := len(list) - shownProcesses; hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

// A source is a place that allocated memory of one region.
type source struct {
	aggregate.Holder
	page.Site
	region string
	name   name.Name
}

// sources writes the places that allocated the memory of the regions, and the memory whose
// place is not known.
func (r *report) sources(regions []aggregate.RegionTotal) {
	list, others, earlier, unknown := sourcesOf(regions)
	if len(list) == 0 && others.Count == 0 && earlier.Count == 0 {
		return // no place is known
	}
	sites := make([]*page.Site, len(list))
	for i := range list {
		sites[i] = &list[i].Site
	}
	page.Distinguish(sites) // those that are not shown too
	shown := list
	// A single other place takes no more room than its summary.
	if n := uint64(len(list)) + others.Stacks; n > shownPlaces+1 || others.Stacks > 0 {
		shown = list[:min(len(list), shownPlaces)]
	}
	for _, s := range list[len(shown):] {
		others.Bytes, others.Count, others.Stacks = others.Bytes+s.Bytes, others.Count+s.Count, others.Stacks+1
	}
	regionColumns := 0
	if len(regions) > 1 {
		for _, s := range shown {
			regionColumns = max(regionColumns, page.Width(s.region)+2)
		}
	}
	figures := func(h *aggregate.Holder) string {
		return page.Blank(6) + page.Right(page.Bytes(h.Bytes), bytesColumns) + page.Right(page.Count(h.Count, "buffer"), 14) + "  "
	}
	before := func() { // last, unless it is larger than a place that is shown
		if earlier.Count > 0 {
			r.line(r.Paint(page.Dim, figures(&earlier)+"before ttmem attached"))
		}
		earlier.Count = 0
	}
	for i := range shown {
		s := &shown[i]
		if earlier.Bytes > s.Bytes {
			before()
		}
		r.source(s, figures(&s.Holder)+page.Left(s.region, regionColumns)[:regionColumns])
	}
	if others.Count > 0 {
		r.line(r.Paint(page.Dim, figures(&others)+page.Count(others.Stacks, "other call site")))
	}
	if unknown.Count > 0 {
		r.line(r.Paint(page.Dim, figures(&unknown)+"without a call stack"))
	}
	before()
}

// source writes the place of a source, beside its figures if there is room.
func (r *report) source(s *source, figures string) {
	name, caller := page.Clean(s.name.Text(r.Separator())), ""
	if s.Caller != "" {
		name, caller = name+", ", "from "+s.Caller
	}
	columns := r.width - page.Width(figures)
	switch {
	case r.whole || page.Width(name+caller) <= columns:
		r.line(r.Paint(page.Dim, figures), name+caller)
		return
	case columns >= leastName:
		r.line(r.Paint(page.Dim, figures), r.FitName(s.name, columns))
	default:
		r.line(r.Paint(page.Dim, strings.TrimRight(figures, " ")))
		columns = r.width - belowColumns
		r.line(page.Blank(belowColumns), r.FitName(s.name, columns))
	}
	if caller != "" {
		r.line(page.Blank(r.width-columns), r.cut(caller, columns))
	}
}

// sourcesOf are the places that allocated the memory of the regions, the largest first. Then
// come the sums of places that are not kept apart, of memory from before the attach, and of
// other memory without a call stack.
func sourcesOf(regions []aggregate.RegionTotal) (list []source, others, earlier, unknown aggregate.Holder) {
	type key struct{ site, calls string }
	known := make(map[key]int)
	add := func(to *aggregate.Holder, h *aggregate.Holder) {
		to.Bytes, to.Count, to.Stacks = to.Bytes+h.Bytes, to.Count+h.Count, to.Stacks+h.Stacks
	}
	for i := range regions {
		l := &regions[i]
		rest := aggregate.Holder{Bytes: l.AllocatedBytes, Count: l.Buffers}
		for j := range l.Holders {
			h := &l.Holders[j]
			rest.Bytes, rest.Count = rest.Bytes-min(h.Bytes, rest.Bytes), rest.Count-min(h.Count, rest.Count)
			switch {
			case h.Stacks > 0:
				add(&others, h)
				continue
			case h.BeforeAttach:
				add(&earlier, h)
				continue
			case h.Stack == nil:
				add(&unknown, h)
				continue
			}
			frames := h.Stack.Frames()
			s := source{
				Holder: *h, region: l.Region,
				name: cmp.Or(name.Of(frames), name.Name{Op: "unknown code"}),
			}
			s.Site = page.Site{Key: s.region + " " + s.name.String(), Calls: page.CallTexts(name.UserCalls(frames))}
			// Stacks that look the same on the page are one place.
			k := key{s.Key, strings.Join(s.Calls, "\n")}
			if at, ok := known[k]; ok {
				add(&list[at].Holder, h)
				continue
			}
			known[k] = len(list)
			list = append(list, s)
		}
		add(&unknown, &rest)
	}
	slices.SortStableFunc(list, func(a, b source) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list, others, earlier, unknown
}
