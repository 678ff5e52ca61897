package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A leak is what survived of one call site.
type leak struct {
	analyze.Verdict
	*alloc.Site
}

// leakPage is what there is to show of what survived.
type leakPage struct {
	analyze.LeakReport
	*leakMarks
	o *leaksOptions
	w *watched
	// marks are those between which births are counted; none without marks.
	marks []leakMark
	// allocated is how many buffers were allocated in all.
	allocated uint64
	// the classes, the most bytes first; of what is stable steady is only summed up
	leaks, stable, steady, retained, suppressed []leak
	list                                        *alloc.Namer
}

func newLeakPage(m *leakMarks, w *watched, o *leaksOptions, filter alloc.Filter, rules *name.Rules) *leakPage {
	p := &leakPage{leakMarks: m, o: o, w: w, marks: m.between(), allocated: m.state.BuffersAllocated(), list: &alloc.Namer{
		Snap: &aggregate.Snapshot{}, Rules: rules, Filter: filter,
	}}
	ask := analyze.LeakOptions{ByRun: m.whole() || m.earlier, Suppressions: o.known}
	for _, one := range p.marks {
		ask.Times = append(ask.Times, one.TimeNs)
	}
	p.LeakReport = analyze.Leaks(m.state, ask)
	sites := make(map[*event.Stack]*alloc.Site)
	known := make(map[int]bool)
	for i := range p.Sites {
		v := &p.Sites[i]
		if len(filter.Regions) > 0 && !slices.Contains(filter.Regions, v.Region) ||
			len(filter.Devices) > 0 && !slices.ContainsFunc(v.Devices, func(id int) bool { return slices.Contains(filter.Devices, id) }) {
			continue
		}
		one := leak{Verdict: *v, Site: sites[v.Stack]}
		if one.Site == nil {
			one.Site = p.list.NewSite(v.Stack)
			sites[v.Stack] = one.Site
		}
		if !known[v.PID] {
			known[v.PID] = true
			process := aggregate.Process{PID: v.PID, Comm: v.Comm}
			process.Command = v.Command
			p.list.Snap.Processes = append(p.list.Snap.Processes, process)
		}
		class := p.class(v)
		*class = append(*class, one)
	}
	return p
}

// class is the list of a class.
func (p *leakPage) class(v *analyze.Verdict) *[]leak {
	switch v.Class {
	case analyze.Leaked:
		return &p.leaks
	case analyze.Retained:
		return &p.retained
	case analyze.Suppressed:
		return &p.suppressed
	}
	if p.whole() || v.Replaced {
		return &p.steady
	}
	return &p.stable
}

// leaked is all that leaked.
func (p *leakPage) leaked() leakSum { return sumOf(p.leaks) }

func sumOf(list []leak) (sum leakSum) {
	for i := range list {
		sum.Stacks++
		sum.Count += list[i].Count
		sum.Bytes += list[i].Bytes
	}
	return sum
}

// byRun reports whether a leak is judged by the run, and not from mark to mark.
func (p *leakPage) byRun() bool { return p.whole() || p.earlier }

// verdict says in one line how it grew.
func (p *leakPage) verdict(l *leak) string {
	leaks := l.Class == analyze.Leaked
	if !p.byRun() {
		return p.verdictBetween(l, leaks)
	}
	text := fmt.Sprintf("grew in %d of %d intervals", l.Rises, l.Intervals)
	switch {
	case p.earlier && !leaks:
		return "did not grow since then"
	case p.earlier:
		text += fmt.Sprintf(" since then, %d since the mark never freed", l.Count)
	case !leaks:
		return text
	case l.Torn.Count > 0:
		text += fmt.Sprintf(", %d times, freed only at the end", l.Count)
	case l.Allocated > l.Count:
		text += fmt.Sprintf(", %d of %d never freed", l.Count, l.Allocated)
	default:
		text += fmt.Sprintf(", %d times, never freed", l.Count)
	}
	return text + ", still growing"
}

// verdictBetween says how it grew from mark to mark, of intervals in which the process
// allocated something.
func (p *leakPage) verdictBetween(l *leak, leaks bool) string {
	last := len(p.marks) - 1
	text := fmt.Sprintf("grew in %d of %d intervals between marks", l.Rises, l.Intervals)
	switch {
	case last == 1 && p.marks[last].Name == "":
		return "grew since the mark"
	case last == 1 && p.marks[0].Name == "":
		return "grew before the mark"
	case last == 1:
		return "grew between the two marks"
	case leaks && l.Intervals > 1:
		text += ", still growing"
	case l.LastRise > 0 && l.LastRise < l.Intervals:
		text += fmt.Sprintf(", not after the %s", ordinal(l.LastRise))
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
			g.Growing = true
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *leakGroup) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Key, b.Key))
	})
}

// notes are what is to be known of the page.
func (p *leakPage) notes() (notes []string) {
	if p.Others.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s from processes that ended are not listed: too many call sites; those with most buffers are kept",
			page.Count(p.Others.Count, "buffer"), page.Bytes(p.Others.Bytes)))
	}
	before, exact := "you asked", "`ttmem leaks FILE` of the service's recording (ttmem serve --record FILE) is exact"
	if p.o.source.file != "" {
		before, exact = p.w.of+" begins", "the files before it are exact"
	}
	if p.earlier {
		notes = append(notes, fmt.Sprintf("the mark %q lies before %s: what was freed between the two is not known, so only call sites that grew since count; %s",
			p.marks[0].Name, before, exact))
	} else if p.earlierMarks > 0 && p.o.from == "" && p.o.interval == 0 {
		notes = append(notes, fmt.Sprintf("%s from before %s not used; --from may name one", page.Count(uint64(p.earlierMarks), "mark"), before))
	}
	if p.stepMarks > 0 {
		notes = append(notes, fmt.Sprintf("%s of steps (ttmem steps, pytest --ttmem) not used; --from and --to may name them", page.Count(uint64(p.stepMarks), "mark")))
	}
	if p.Over.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s ended with a device or a process before the mark %q; --to end counts them",
			page.Count(p.Over.Count, "buffer"), page.Bytes(p.Over.Bytes), p.marks[len(p.marks)-1].Name))
	}
	return notes
}
