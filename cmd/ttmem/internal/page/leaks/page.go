// Package leaks is the page of the call sites that leak, as text and as JSON.
package leaks

import (
	"fmt"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// A Page has the verdicts on the survivors, and how to show them.
type Page struct {
	Options
	analyze.LeakReport
	// The classes, each with the most bytes first. Of the stable sites, the page lists those in
	// stable, and has only the sum of those in steady.
	leaks, undecided, stable, steady, retained, suppressed []*alloc.Row
	names                                                  *alloc.Namer
}

// Options are what a page shows.
type Options struct {
	// By is the grouping of leaks, as alloc.GroupingOf names it.
	By string
	// Lines is true if a line with several call sites has one row in the text.
	Lines bool
	// Limit is the maximum number of rows of a list in the text; 0: all.
	Limit  int
	Filter alloc.Filter
	Rules  *name.Rules
	// Suppress is the name of the file of suppressions; "" without one.
	Suppress string
	// NowNs is the time of the latest event, CLOCK_MONOTONIC.
	NowNs uint64
	// WatchedNs is how long processes that continue were watched; 0 if they ended.
	WatchedNs uint64
	// Allocated is the number of all buffers that were allocated.
	Allocated uint64
	// Marks are the marks between which survivors are counted; none for the whole run.
	Marks []Mark
	// From and To are the first and the last mark as the user named them, such as "warm#2";
	// "" if the user named none.
	From, To string
	// Within is the function whose calls the marks begin; "" for marks of the user.
	Within string
	// Span is the part of the recording; zero for all of it.
	Span page.Span
	// Cut is true if the recording's end is missing.
	Cut bool
	// StepMarks is the number of marks of steps that were not used.
	StepMarks int
	// Processes have the memory on the host.
	Processes []memory.Process
	// Losses are what was lost since the first mark.
	Losses memory.AllLosses
}

// A Mark is a mark, or the beginning or the end, which have no name.
type Mark struct {
	Name   string `json:"name,omitempty"`
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
}

// New returns the page of a report.
func New(report analyze.LeakReport, o Options) *Page {
	p := &Page{Options: o, LeakReport: report, names: &alloc.Namer{
		Snap: &memory.Snapshot{}, Rules: o.Rules, Filter: o.Filter,
	}}
	known := make(map[int]bool)
	for i := range p.Sites {
		v := &p.Sites[i]
		row, selected := p.names.Row(alloc.RowOf(&v.Site), v.Stack)
		if !selected {
			continue
		}
		row.Devices = v.Devices // survivors are not counted by chip
		row.Verdict, row.Amounts, row.OldestNs = v, []memory.Amount{v.Amount}, v.AgeNs
		if !known[v.PID] {
			known[v.PID] = true
			p.names.Snap.Processes = append(p.names.Snap.Processes, memory.Process{PID: v.PID, Comm: v.Comm, About: v.About})
		}
		class := p.class(v)
		*class = append(*class, &row)
	}
	return p
}

// class returns the list of a class.
func (p *Page) class(v *analyze.Verdict) *[]*alloc.Row {
	switch v.Class {
	case analyze.Leaked:
		return &p.leaks
	case analyze.Undecided:
		return &p.undecided
	case analyze.Retained:
		return &p.retained
	case analyze.Suppressed:
		return &p.suppressed
	}
	// Growth while processes were watched is listed, even if it has stopped.
	if v.Replaced || p.whole() && (p.WatchedNs == 0 || v.Fresh.Count == 0 || v.Run.FreedAt > 0) {
		return &p.steady
	}
	return &p.stable
}

// LeakedBytes is the sum of all leaks.
func (p *Page) LeakedBytes() uint64 { return sumOf(p.leaks).Bytes }

// Leaked returns the leaks, largest first.
func (p *Page) Leaked() []*alloc.Row { return p.leaks }

// Undecided says how much grew in too few buffers to be judged; "" if nothing did.
func (p *Page) Undecided() string {
	if len(p.undecided) == 0 {
		return ""
	}
	return "growing" + page.Growing(alloc.Total(p.undecided), len(p.undecided))
}

func sumOf(list []*alloc.Row) sum {
	total := alloc.Total(list)
	return sum{len(list), total.Count, total.Bytes}
}

// whole reports whether no marks were selected.
func (p *Page) whole() bool { return len(p.Marks) == 0 }

// hostGrowth names the processes whose memory on the host grew over the whole run.
func (p *Page) hostGrowth() []string {
	if !p.whole() {
		return nil
	}
	return page.HostGrowth(p.Processes, p.Filter.PIDs, p.names.Users())
}

// verdict says in one line how a call site grew.
func (p *Page) verdict(r *alloc.Row) string {
	l, few := r.Verdict, ", "+page.TooFew(r.Sites)
	leaks, undecided := l.Class == analyze.Leaked, l.Class == analyze.Undecided
	if !p.whole() {
		text := p.verdictBetween(l, leaks)
		if undecided {
			text += few
		}
		return text
	}
	text, of := fmt.Sprintf("grew in %d of %d intervals of the run", l.Rises, l.Intervals), ""
	switch {
	case !leaks && !undecided:
		return text
	case l.Allocated > l.Count:
		of = fmt.Sprintf(" of %d", l.Allocated)
	}
	freed := "never freed"
	if l.FreedAtTeardown.Count > 0 {
		freed = "freed only at the end"
	}
	if undecided {
		return fmt.Sprintf("%s: %d%s %s%s", text, l.Count, of, freed, few)
	}
	return fmt.Sprintf("%s, still growing: %d%s %s", text, l.Count, of, freed)
}

// verdictBetween says how a call site grew from mark to mark. It counts intervals in which
// the process allocated something.
func (p *Page) verdictBetween(l *analyze.Verdict, leaks bool) string {
	last := len(p.Marks) - 1
	text := fmt.Sprintf("grew in %d of %d intervals between marks", l.Rises, l.Intervals)
	if p.Within != "" {
		text = fmt.Sprintf("grew in %d of %d calls of %s", l.Rises, l.Intervals, page.Clean(p.Within))
	}
	switch {
	case last == 1 && p.Within != "":
		return text
	case last == 1 && p.Marks[last].Name == "":
		return "grew since the mark"
	case last == 1 && p.Marks[0].Name == "":
		return "grew before the mark"
	case last == 1:
		return "grew between the two marks"
	case leaks && l.Intervals > 1:
		text += ", still growing"
	case l.LastRise > 0 && l.LastRise < l.Intervals:
		text += fmt.Sprintf(", not after the %s", page.Ordinal(l.LastRise))
	}
	return text
}

// folded adds up the leaks of a class that look alike or, with lines, share a line.
func (p *Page) folded(list []*alloc.Row, lines bool) []*alloc.Row {
	sums := table.Table{Names: p.names, By: "stack"}
	for _, l := range list {
		sums.Add(l, p.place(l))
	}
	return sums.Rows(lines, nil)
}

// groups returns the leaks by the option By.
func (p *Page) groups() []*alloc.Row {
	sums := table.Table{Names: p.names, By: p.By}
	for _, l := range p.leaks {
		rest := *l
		rest.Verdict, rest.Amounts = nil, slices.Clone(l.Amounts)
		if p.By == "owner" {
			for _, c := range l.Verdict.Containers {
				part := rest
				if part.Amounts = []memory.Amount{c.In(rest.Amounts[0])}; part.Amounts[0].Count > 0 {
					rest.Amounts[0].Sub(part.Amounts[0])
					sums.AddTo(&part, []string{page.Clean(c.Owner)})
				}
			}
			if rest.Amounts[0].Count == 0 {
				continue
			}
		}
		sums.Add(&rest)
	}
	return sums.Rows(false, nil)
}
