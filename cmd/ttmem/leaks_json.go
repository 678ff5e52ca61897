package main

import (
	"io"

	"ttmem/aggregate/analyze"
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
	// Left is what survived from From to To and is stable, without what only took the
	// place of other buffers.
	Left []leakRow `json:"left"`
	// Kept is what the runtime retains.
	Kept []leakRow `json:"kept"`
	// Steady is what else is stable.
	Steady leakSum `json:"steady"`
	// Suppressed is what --suppress left out.
	Suppressed leakSum `json:"suppressed"`
	// Others is what ended with its device or process, of stacks that were too many to
	// be told apart.
	Others leakSum `json:"others"`
	// EndedBefore is what ended with its device or process before the mark To.
	EndedBefore leakSum `json:"ended_before"`
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
	// Class is leaked, stable, retained or suppressed, and Growing is true of what leaked.
	Class   string `json:"class"`
	Growing bool   `json:"growing"`
	// Verdict says in words that survivors were allocated in Rises of so many Intervals;
	// they are not of what is retained.
	Verdict   string `json:"verdict,omitempty"`
	Intervals int    `json:"intervals,omitempty"`
	Rises     int    `json:"rises,omitempty"`
	// GrowthBytes is how many bytes of the survivors were allocated from each mark to the
	// next.
	GrowthBytes []uint64 `json:"growth_bytes,omitempty"`
	OldestNs    uint64   `json:"oldest_ns"`
	// Name is the operation and the innermost line of the user's own code.
	Name      string `json:"name"`
	Component string `json:"component,omitempty"`
	// Kind and Why are of what is retained.
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
		V: 1, TimeNs: p.nowNs, WatchedNs: p.o.watchedNs, Allocated: p.allocated, StepMarks: p.stepMarks, FromIsEarlier: p.earlier,
		LeakedBytes: sum.Bytes, LeakedCount: sum.Count,
		Leaks: p.rows(p.leaks), Left: p.rows(p.stable), Kept: p.rows(p.retained),
		Steady:      sumOf(p.steady),
		Suppressed:  sumOf(p.suppressed),
		Others:      leakSum{0, p.Others.Count, p.Others.Bytes},
		EndedBefore: leakSum{0, p.Over.Count, p.Over.Bytes},
		Marks:       p.marks,
	}
	if n := len(p.marks); n > 0 {
		doc.From, doc.To = &p.marks[0], &p.marks[n-1]
	}
	if p.o.by != "stack" {
		doc.By, doc.Groups = p.o.by, p.groups()
	}
	return page.JSON(w, &doc)
}

func (p *leakPage) rows(list []leak) []leakRow {
	rows := []leakRow{}
	for i := range list {
		l := &list[i]
		row := leakRow{
			Bytes: l.Bytes, Count: l.Count, Allocated: l.Allocated, Class: string(l.Class), Growing: l.Class == analyze.Leaked,
			OldestNs: l.AgeNs, Name: p.title(l, " · "), Component: l.Component,
			PID: l.PID, Region: l.Region.String(), Layout: l.Layout.String(), Devices: l.Devices,
			Stack: append([]event.Frame{}, l.Verdict.Stack.Frames()...),
		}
		for _, births := range l.Births {
			row.GrowthBytes = append(row.GrowthBytes, births.Bytes)
		}
		if l.By != nil {
			row.Kind, row.Why = l.By.Name, l.By.Why
		} else {
			row.Verdict, row.Intervals, row.Rises = p.verdict(l), l.Intervals, l.Rises
		}
		rows = append(rows, row)
	}
	return rows
}
