package main

import (
	"fmt"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/leaks"
	"ttmem/cmd/ttmem/source"
)

// page judges the survivors, as the options say.
func (o *leaksOptions) page(m *leakMarks, filter alloc.Filter, rules *name.Rules) *leaks.Page {
	marks := m.between()
	ask := analyze.LeakOptions{ByRun: m.whole() || m.earlier, Suppressions: o.known}
	for _, one := range marks {
		ask.Times = append(ask.Times, one.TimeNs)
	}
	return leaks.New(analyze.Leaks(m.state, ask), leaks.Options{
		By: o.by, Limit: o.n, Filter: filter, Rules: rules, Suppress: o.suppress,
		NowNs: m.nowNs, WatchedNs: o.watchedNs, Allocated: m.state.BuffersAllocated(),
		Marks: marks, From: markText(m.from, m.fromNth), To: markText(m.to, m.toNth),
		Whole: m.whole(), FromIsEarlier: m.earlier, StepMarks: m.stepMarks,
	})
}

// pageNotes say which survivors and marks the page leaves out.
func (o *leaksOptions) pageNotes(p *leaks.Page, m *leakMarks, w *source.Summary) (notes []string) {
	if p.Others.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s from processes that ended are not listed: too many call sites; those with most buffers are kept",
			page.Count(p.Others.Count, "buffer"), page.Bytes(p.Others.Bytes)))
	}
	before, exact := "you asked", "`ttmem leaks FILE` of the service's recording (ttmem serve --record FILE) is exact"
	if o.source.File != "" {
		before, exact = w.Of+" begins", "the files before it are exact"
	}
	if m.earlier {
		notes = append(notes, fmt.Sprintf("the mark %q lies before %s: what was freed between the two is not known, so only call sites that grew since count; %s",
			p.Marks[0].Name, before, exact))
	} else if m.earlierMarks > 0 && o.from == "" && o.interval == 0 {
		notes = append(notes, fmt.Sprintf("%s from before %s not used; --from may name one", page.Count(uint64(m.earlierMarks), "mark"), before))
	}
	if p.StepMarks > 0 {
		notes = append(notes, fmt.Sprintf("%s of steps (ttmem steps, pytest --ttmem) not used; --from and --to may name them", page.Count(uint64(p.StepMarks), "mark")))
	}
	if p.EndedBefore.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s ended with a device or a process before the mark %q; --to end counts them",
			page.Count(p.EndedBefore.Count, "buffer"), page.Bytes(p.EndedBefore.Bytes), p.Marks[len(p.Marks)-1].Name))
	}
	return notes
}
