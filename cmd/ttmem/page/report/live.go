package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
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

// A processMemory is the memory of a process at one time, in several regions.
type processMemory struct {
	process *memory.Process
	// when is "" if it is the time of the section's title.
	when    string
	regions []memory.RegionTotal
}

// live writes the live memory of processes, and the memory that was unfreed when they closed a
// device or ended.
func (r *report) live() {
	if len(r.snap.Devices) == 0 {
		return
	}
	var live, freed []processMemory
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		if len(p.Live) > 0 {
			live = append(live, processMemory{p, "", p.Live})
		}
		for _, part := range page.Alike(p.Unfreed, func(a, b memory.RegionTotal) bool { return a.Reason == b.Reason }) {
			when := "when it ended: "
			if part[0].Reason == event.ReasonDeviceClose.String() {
				when = "when its device closed: "
			}
			freed = append(freed, processMemory{p, when, part})
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
	if r.snap.LostEvents > 0 || r.forgotten() > 0 || len(r.snap.Processes) == 0 && !r.Own {
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
func allocated(p memory.Process) bool {
	return slices.ContainsFunc(p.Devices, func(d memory.Device) bool {
		for region := range event.Region(event.BankedRegions) {
			if d.Regions.Banked(region).PeakBytes > 0 {
				return true
			}
		}
		return false
	})
}

// section writes the memory of processes, the largest first.
func (r *report) section(title string, list []processMemory) {
	if len(list) == 0 {
		return
	}
	sum := make(map[*memory.Process]uint64)
	for _, h := range list {
		for _, l := range h.regions {
			sum[h.process] += l.AllocatedBytes
		}
	}
	about := ", total over all banks"
	if slices.ContainsFunc(list, func(h processMemory) bool { return len(h.process.Devices) > 1 }) {
		about += " of all chips"
	}
	r.line()
	r.line(r.Paint(page.Bold, title), r.Paint(page.Dim, about))
	slices.SortStableFunc(list, func(a, b processMemory) int { return cmp.Compare(sum[b.process], sum[a.process]) })
	var last *memory.Process
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
	memory.Holder
	region string
	name   name.Name
	// calls are the user's calls that led there, and caller is the one in which it differs from
	// others of the same name.
	calls  []string
	caller string
}

// sources writes the places that allocated the memory of the regions, and the memory whose
// place is not known.
func (r *report) sources(regions []memory.RegionTotal) {
	list, others, earlier, unknown := sourcesOf(regions)
	if len(list) == 0 && others.Count == 0 && earlier.Count == 0 {
		return // no place is known
	}
	shown := len(list)
	// A single other place takes no more room than its summary.
	if n := uint64(len(list)) + others.Stacks; n > shownPlaces+1 || others.Stacks > 0 {
		shown = min(len(list), shownPlaces)
	}
	for _, s := range list[shown:] {
		add(&others, &memory.Holder{Bytes: s.Bytes, Count: s.Count, Stacks: 1})
	}
	list = list[:shown]
	regionColumns := 0
	for _, s := range list {
		if len(regions) > 1 {
			regionColumns = max(regionColumns, page.Width(s.region)+2)
		}
	}
	figures := func(h *memory.Holder) string {
		return page.Columns{6 + bytesColumns, 14}.Line(page.Bytes(h.Bytes), page.Count(h.Count, "buffer")) + "  "
	}
	sum := func(h *memory.Holder, what string) {
		if h.Count > 0 {
			r.line(r.Paint(page.Dim, figures(h)+what))
		}
	}
	for i := range list {
		s := &list[i]
		if earlier.Bytes > s.Bytes { // which is last, unless it is larger than a place that is shown
			sum(&earlier, "before ttmem attached")
			earlier = memory.Holder{}
		}
		r.source(s, figures(&s.Holder)+page.Left(s.region, regionColumns)[:regionColumns])
	}
	sum(&others, page.Count(others.Stacks, "other call site"))
	sum(&unknown, "without a call stack")
	sum(&earlier, "before ttmem attached")
}

// source writes the place of a source, beside its figures if there is room.
func (r *report) source(s *source, figures string) {
	name, caller := page.Clean(s.name.Text(r.Separator())), ""
	if s.caller != "" {
		name, caller = name+", ", "from "+s.caller
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

// add adds h to a sum.
func add(to, h *memory.Holder) {
	to.Bytes, to.Count, to.Stacks = to.Bytes+h.Bytes, to.Count+h.Count, to.Stacks+h.Stacks
}

// sourcesOf are the places that allocated the memory of the regions, the largest first. Then
// come the sums of places that are not kept apart, of memory from before the attach, and of
// other memory without a call stack.
func sourcesOf(regions []memory.RegionTotal) (list []source, others, earlier, unknown memory.Holder) {
	for i := range regions {
		l := &regions[i]
		rest := memory.Holder{Bytes: l.AllocatedBytes, Count: l.Buffers}
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
				Holder: *h, region: l.Region, name: cmp.Or(name.Of(frames), name.Name{Op: "unknown code"}),
				calls: page.CallTexts(name.UserCalls(frames)),
			}
			// Stacks that look the same on the page are one place.
			if at := slices.IndexFunc(list, func(o source) bool {
				return o.region == s.region && o.name == s.name && slices.Equal(o.calls, s.calls)
			}); at >= 0 {
				add(&list[at].Holder, h)
			} else {
				list = append(list, s)
			}
		}
		add(&unknown, &rest)
	}
	slices.SortStableFunc(list, func(a, b source) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var names []string
	var calls [][]string
	for i := range list {
		names, calls = append(names, list[i].region+" "+list[i].name.String()), append(calls, list[i].calls)
	}
	for i, caller := range page.Distinguish(names, calls) {
		list[i].caller = caller
	}
	return list, others, earlier, unknown
}
