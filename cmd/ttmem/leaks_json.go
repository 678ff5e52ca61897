package main

import (
	"io"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// leakDoc is the page as JSON.
type leakDoc struct {
	V      int       `json:"v"`
	TimeNs uint64    `json:"time_ns"`
	From   *leakMark `json:"from,omitempty"`
	To     *leakMark `json:"to,omitempty"`
	// FromIsEarlier is true where From lies before what is known: leaks are what grew
	// since.
	FromIsEarlier bool `json:"from_is_earlier,omitempty"`
	// Marks are those between which GrowthBytes are.
	Marks []leakMark `json:"marks,omitempty"`
	// WatchedNs is how long processes were watched that go on.
	WatchedNs uint64 `json:"watched_ns,omitempty"`
	// Allocated is how many buffers were allocated in all: of few nothing can be told.
	Allocated uint64 `json:"allocated"`
	// StepMarks is how many marks of steps were passed over.
	StepMarks int `json:"step_marks,omitempty"`
	// LeakedBytes and LeakedCount are the sums of Leaks, which --fail-above compares.
	LeakedBytes uint64 `json:"leaked_bytes"`
	LeakedCount uint64 `json:"leaked_count"`
	// Leaks are leaks, worst first.
	Leaks []leakRow `json:"leaks"`
	// By and Groups are the leaks counted by something else than the stack.
	By     string       `json:"by,omitempty"`
	Groups []*leakGroup `json:"groups,omitempty"`
	// Left is what is left at To and does not grow, where there are marks between
	// From and To.
	Left []leakRow `json:"left"`
	// Unclear is what grew while next to nothing was freed: weights that are loaded
	// do so, too.
	Unclear []leakRow `json:"unclear"`
	// Kept is what tt-metal keeps.
	Kept []leakRow `json:"kept"`
	// Steady is what is left and does not grow.
	Steady leakSum `json:"steady"`
	// Suppressed is what --suppress left out.
	Suppressed leakSum `json:"suppressed"`
	// Others is what ended with its device or process, of stacks that were too many to
	// be told apart.
	Others leakSum `json:"others"`
	// EndedBefore is what ended with its device or process before the mark To.
	EndedBefore leakSum `json:"ended_before"`
}

type leakMark struct {
	Name   string `json:"name,omitempty"`
	TimeNs uint64 `json:"time_ns"`
}

type leakSum struct {
	Stacks int    `json:"stacks,omitempty"`
	Count  uint64 `json:"count"`
	Bytes  uint64 `json:"bytes"`
}

// leakRow is a stack.
type leakRow struct {
	Bytes uint64 `json:"bytes"`
	Count uint64 `json:"count"`
	// Allocated is how many the stack allocated in all.
	Allocated uint64 `json:"allocated"`
	// Growing, Rises of Intervals and Verdict say how it grew; they are not of what
	// is kept.
	Growing   bool   `json:"growing"`
	Verdict   string `json:"verdict,omitempty"`
	Intervals int    `json:"intervals,omitempty"`
	Rises     int    `json:"rises,omitempty"`
	// GrowthBytes is how many bytes came from each mark to the next.
	GrowthBytes []int64 `json:"growth_bytes,omitempty"`
	OldestNs    uint64  `json:"oldest_ns"`
	// Name is the operation and the innermost line of the user's own code.
	Name      string `json:"name"`
	Component string `json:"component,omitempty"`
	// Kind and Why are of what is kept.
	Kind    string        `json:"kind,omitempty"`
	Why     string        `json:"why,omitempty"`
	PID     int           `json:"pid"`
	Region  string        `json:"region"`
	Layout  string        `json:"layout"`
	Devices []int         `json:"devices"`
	Stack   []event.Frame `json:"stack"`
}

func (p *leakPage) writeJSON(w io.Writer) error {
	sum := p.leaked()
	doc := leakDoc{
		V: 1, TimeNs: p.TimeNs, WatchedNs: p.o.watchedNs, Allocated: p.Allocated, StepMarks: p.StepMarks, FromIsEarlier: p.Earlier, LeakedBytes: sum.Bytes, LeakedCount: sum.Count,
		Leaks: p.rows(p.leaks), Left: p.rows(p.left), Unclear: p.rows(p.unclear), Kept: p.rows(p.kept),
		Steady:      leakSum{p.steadyStacks, p.steady.Count, p.steady.Bytes},
		Suppressed:  leakSum{p.suppressedStacks, p.suppressed.Count, p.suppressed.Bytes},
		Others:      leakSum{0, p.Others.Count, p.Others.Bytes},
		EndedBefore: leakSum{0, p.Over.Count, p.Over.Bytes},
	}
	if len(p.Marks) > 0 {
		doc.From, doc.To = toLeakMark(p.From), toLeakMark(p.To)
		for _, m := range p.Marks {
			doc.Marks = append(doc.Marks, *toLeakMark(m))
		}
	}
	if p.o.by != "stack" {
		doc.By, doc.Groups = p.o.by, p.groups()
	}
	return page.JSON(w, &doc)
}

func toLeakMark(m aggregate.GrowthMark) *leakMark { return &leakMark{m.Name, m.TimeNs} }

func (p *leakPage) rows(list []leak) []leakRow {
	rows := []leakRow{}
	for i := range list {
		l := &list[i]
		row := leakRow{
			Bytes: l.Bytes, Count: l.Count, Allocated: l.Allocated, Growing: l.growing,
			GrowthBytes: l.Steps, OldestNs: l.OldestNs, Name: p.title(l, " · "), Component: l.Component,
			PID: l.PID, Region: l.Region.String(), Layout: l.Layout.String(), Devices: l.Devices,
			Stack: append([]event.Frame{}, l.Grown.Stack.Frames()...),
		}
		trend := &l.Trend
		if !p.byTrend() {
			trend = &l.Between
		}
		row.Intervals, row.Rises = trend.Intervals, trend.Rises
		if l.keeps != nil {
			row.Growing, row.Kind, row.Why = false, l.keeps.Name, l.keeps.Why
		} else {
			row.Verdict = p.verdict(l)
		}
		rows = append(rows, row)
	}
	return rows
}
