package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A leak is what one call stack allocated and did not give back.
type leak struct {
	aggregate.Grown
	*alloc.Site
	// keeps is what of tt-metal's own keeps it; nil for the program's own.
	keeps *name.Retained
	// growing is true where it grows time and again.
	growing bool
}

// leakPage is what there is to show of what is left.
type leakPage struct {
	*aggregate.GrowthReport
	o *leaksOptions
	w *watched
	// leaks are leaks, the largest first; left is what between marks does not grow,
	// unclear what grew while nothing else was freed, and kept what tt-metal keeps.
	leaks, left, unclear, kept []leak
	// steady is what is left and does not grow, and suppressed what is not to be told
	// of, of suppressedStacks stacks.
	steady, suppressed             aggregate.Amount
	steadyStacks, suppressedStacks int
	// judged is true where only what grows is a leak.
	judged bool
	// replaced is what was there at From and is gone.
	replaced map[placeKey]aggregate.Amount
	list     *alloc.Namer
}

// A placeKey is a line of a process: what it has there now takes the place of what it
// had there before, whoever called it.
type placeKey struct {
	pid    int
	region event.Region
	name   name.Name
}

// judgedIntervals is from how many intervals between marks on only what grows is a
// leak, where the marks were not named by the user.
const judgedIntervals = 4

func newLeakPage(r *aggregate.GrowthReport, w *watched, o *leaksOptions, filter alloc.Filter, rules *name.Rules) *leakPage {
	named := o.from != "" || o.to != ""
	p := &leakPage{GrowthReport: r, o: o, w: w, replaced: make(map[placeKey]aggregate.Amount), list: &alloc.Namer{
		Snap: &aggregate.Snapshot{}, Rules: rules, Filter: filter,
	}}
	p.judged = len(r.Marks) == 0 || o.interval > 0 || !named && len(r.Marks) > judgedIntervals
	sites := make(map[*event.Stack]*alloc.Site)
	known := make(map[int]bool)
	var all []leak
	for i := range r.Left {
		g := &r.Left[i]
		if len(filter.Regions) > 0 && !slices.Contains(filter.Regions, g.Region) ||
			len(filter.Devices) > 0 && !slices.ContainsFunc(g.Devices, func(id int) bool { return slices.Contains(filter.Devices, id) }) {
			continue
		}
		one := leak{Grown: *g, Site: sites[g.Stack]}
		if one.Site == nil {
			one.Site = p.list.NewSite(g.Stack)
			sites[g.Stack] = one.Site
		}
		if !known[g.PID] {
			known[g.PID] = true
			process := aggregate.Process{PID: g.PID, Comm: g.Comm}
			process.Command = g.Command
			p.list.Snap.Processes = append(p.list.Snap.Processes, process)
		}
		key := placeKey{one.PID, one.Region, one.Name}
		sum := p.replaced[key]
		p.replaced[key] = aggregate.Amount{Count: sum.Count + one.Replaced.Count, Bytes: sum.Bytes + one.Replaced.Bytes}
		all = append(all, one)
	}
	for _, one := range all {
		p.add(one)
	}
	for _, list := range [][]leak{p.leaks, p.left, p.unclear} {
		slices.SortStableFunc(list, func(a, b leak) int {
			return cmp.Or(page.CompareBool(b.growing, a.growing), cmp.Compare(b.Bytes, a.Bytes))
		})
	}
	return p
}

// add puts what is left where it belongs.
func (p *leakPage) add(one leak) {
	frames := one.Grown.Stack.Frames()
	one.keeps, one.growing = name.RuntimeRetained(frames), one.Between.Growing
	if p.byTrend() {
		if one.growing = one.Trend.Growing; one.growing {
			one.Count += one.Torn.Count
			one.Bytes += one.Torn.Bytes
		}
	}
	switch {
	case p.o.known.Match(frames):
		p.suppressedStacks++
		p.suppressed.Count += one.Count
		p.suppressed.Bytes += one.Bytes
	case one.keeps != nil:
		p.kept = append(p.kept, one)
	case one.Count == 0 && !one.growing:
		// it was freed
	case p.judged && !one.growing, !p.judged && !p.takePlace(&one):
		p.steadyStacks++
		p.steady.Count += one.Count
		p.steady.Bytes += one.Bytes
	case p.Earlier && !one.growing, !p.byTrend() && !p.grows(&one.Between):
		p.left = append(p.left, one)
	case p.byTrend() && one.Trend.Lonely && !name.ResultOfOperation(frames):
		p.unclear = append(p.unclear, one)
	default:
		p.leaks = append(p.leaks, one)
	}
}

// byTrend reports whether a leak is what grows over time, and not from mark to mark: where
// a mark is from before what is known, so much may only have been replaced.
func (p *leakPage) byTrend() bool { return p.judged || p.Earlier }

// grows reports whether what is left between marks is a leak. Of one interval all is; of
// so few that a trend cannot be told, what rose in the last of them.
func (p *leakPage) grows(t *aggregate.Trend) bool {
	return t.Growing || t.Intervals <= 1 || t.Intervals < judgedIntervals && t.Last == t.Intervals
}

// takePlace takes from what is left what only took the place of something that is gone,
// and reports whether there is more.
func (p *leakPage) takePlace(one *leak) bool {
	key := placeKey{one.PID, one.Region, one.Name}
	gone := p.replaced[key]
	taken := aggregate.Amount{Count: min(gone.Count, one.Count), Bytes: min(gone.Bytes, one.Bytes)}
	p.replaced[key] = aggregate.Amount{Count: gone.Count - taken.Count, Bytes: gone.Bytes - taken.Bytes}
	if taken.Count == one.Count {
		return false
	}
	one.Count -= taken.Count
	one.Bytes -= taken.Bytes
	return true
}

// leaked is all that leaked.
func (p *leakPage) leaked() aggregate.Amount { return sumOf(p.leaks) }

func sumOf(list []leak) (sum aggregate.Amount) {
	for i := range list {
		sum.Count += list[i].Count
		sum.Bytes += list[i].Bytes
	}
	return sum
}

// verdict says in one line how it grew.
func (p *leakPage) verdict(l *leak) string {
	if !p.byTrend() {
		return p.between(&l.Between, l.growing && l.Between.Intervals > 1)
	}
	t := &l.Trend
	switch {
	case p.Earlier && t.Intervals == 0:
		return "did not grow since then"
	case p.Earlier && !l.growing:
		return fmt.Sprintf("grew in %d of %d intervals since then, not to the end", t.Rises, t.Intervals)
	}
	text := fmt.Sprintf("grew in %d of %d intervals, ", t.Rises, t.Intervals)
	switch {
	case p.Earlier:
		text = fmt.Sprintf("grew in %d of %d intervals since then, %d since the mark never freed", t.Rises, t.Intervals, l.Count)
	case l.Torn.Count > 0:
		text += fmt.Sprintf("%d times, freed only at the end", l.Count)
	case l.Allocated > l.Count:
		text += fmt.Sprintf("%d of %d never freed", l.Count, l.Allocated)
	default:
		text += fmt.Sprintf("%d times, never freed", l.Count)
	}
	return text + ", still growing"
}

// between says how it grew from mark to mark, of intervals in which the process
// allocated something.
func (p *leakPage) between(t *aggregate.Trend, growing bool) string {
	text := fmt.Sprintf("grew in %d of %d intervals between marks", t.Rises, t.Intervals)
	switch {
	case t.Intervals == 1 && len(p.Marks) == 2 && p.To.Name == "":
		return "grew since the mark"
	case t.Intervals == 1 && len(p.Marks) == 2 && p.From.Name == "":
		return "grew before the mark"
	case t.Intervals == 1 && len(p.Marks) == 2:
		return "grew between the two marks"
	case growing:
		text += ", still growing"
	case t.Last > 0 && t.Last < t.Intervals:
		text += fmt.Sprintf(", not after the %s", ordinal(t.Last))
	}
	return text
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// title is what it is called, in one line.
func (p *leakPage) title(l *leak, separator string) string {
	return p.list.Title(&alloc.Row{Site: l.Site}, separator)
}

// leakGroup is what is counted together.
type leakGroup struct {
	Key     string `json:"key"`
	Bytes   uint64 `json:"bytes"`
	Count   uint64 `json:"count"`
	Growing bool   `json:"growing"`
}

// groups are the leaks by something, the most bytes first.
func (p *leakPage) groups() []*leakGroup {
	by := alloc.GroupingOf(p.o.by)
	groups := make(map[string]*leakGroup)
	for i := range p.leaks {
		l := &p.leaks[i]
		a := alloc.Row{Devices: l.Devices, Region: l.Region, PID: l.PID, Layout: l.Layout.String(), Site: l.Site}
		keys := by.Keys(p.list, &a)
		for _, key := range keys {
			g := groups[key]
			if g == nil {
				g = &leakGroup{Key: key}
				groups[key] = g
			}
			g.Bytes += l.Bytes / uint64(len(keys))
			g.Count += l.Count
			g.Growing = g.Growing || l.growing
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *leakGroup) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Key, b.Key))
	})
}

// notes are what is to be known of the page.
func (p *leakPage) notes() (notes []string) {
	if p.o.interval > 0 && len(p.Marks) <= judgedIntervals {
		notes = append(notes, fmt.Sprintf("--interval %v: the allocations take no more than %s, so that there are few marks; judged without them",
			p.o.interval, page.Seconds(p.TimeNs-min(p.TimeNs, p.From.TimeNs))))
	}
	if p.Others.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s that ended with a device or a process are not told apart, nor counted: they are of too many call stacks",
			page.Count(p.Others.Count, "buffer"), page.Bytes(p.Others.Bytes)))
	}
	if p.Earlier {
		since, known := "you asked", "`ttmem leaks FILE` of the service's recording (ttmem serve --record FILE) knows"
		if p.o.source.file != "" {
			since, known = p.w.of+" begins", "the files before it know"
		}
		notes = append(notes, fmt.Sprintf("the mark %q lies before %s: what was there at it and was freed by then is not known, so that of what is left some may only "+
			"have replaced it; a leak is what grew since. %s it exactly", p.From.Name, since, known))
	} else if p.EarlierMarks > 0 && p.o.from == "" && p.o.interval == 0 {
		before := "you asked"
		if p.o.source.file != "" {
			before = p.w.of + " begins"
		}
		notes = append(notes, fmt.Sprintf("%s from before %s not used; --from may name one", page.Count(uint64(p.EarlierMarks), "mark"), before))
	}
	if p.StepMarks > 0 {
		notes = append(notes, fmt.Sprintf("%s of steps (ttmem steps, pytest --ttmem) not used; --from and --to may name them", page.Count(uint64(p.StepMarks), "mark")))
	}
	if p.Over.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s ended with a device or a process before the mark %q; --to end counts them",
			page.Count(p.Over.Count, "buffer"), page.Bytes(p.Over.Bytes), p.To.Name))
	}
	return notes
}
