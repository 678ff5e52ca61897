package leaks

import (
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem leaks --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V      int    `json:"v"`
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	From   *Mark  `json:"from,omitempty"`
	To     *Mark  `json:"to,omitempty"`
	// Marks are the marks between which GrowthBytes are counted.
	Marks []Mark `json:"marks,omitempty"`
	// WatchedNs is how long processes that continue were watched.
	WatchedNs uint64 `json:"watched_ns,omitempty"`
	// CutShort is true if the recording's end is missing.
	CutShort bool `json:"cut_short,omitempty"`
	// Allocated is the number of all buffers that were allocated: few are not enough to
	// judge.
	Allocated uint64 `json:"allocated"`
	// StepMarks is the number of marks of steps that were not used.
	StepMarks int `json:"step_marks,omitempty"`
	// LeakedBytes and LeakedCount are the sums of Leaks, which --fail-above compares.
	LeakedBytes uint64 `json:"leaked_bytes"`
	LeakedCount uint64 `json:"leaked_count"`
	// Leaks have the most bytes first.
	Leaks []row `json:"leaks"`
	// By and Groups are the leaks counted by something other than the stack.
	By     string   `json:"by,omitempty"`
	Groups []*group `json:"groups,omitempty"`
	// Undecided are the call sites that grow, but are too small to judge, the most bytes first. They
	// are not in LeakedBytes.
	UndecidedBytes uint64 `json:"undecided_bytes"`
	UndecidedCount uint64 `json:"undecided_count"`
	Undecided      []row  `json:"undecided"`
	// Left survived between From and To, and is stable. Steady counts buffers that only replaced
	// others. Without marks, Left was allocated while running processes were watched.
	Left []row `json:"left"`
	// Kept is the memory that the runtime retains.
	Kept []row `json:"kept"`
	// Steady is the sum of other stable buffers.
	Steady sum `json:"steady"`
	// Suppressed is the sum of buffers that --suppress left out.
	Suppressed sum `json:"suppressed"`
	// Others ended with their device or process; there were too many of their call stacks to keep
	// them apart.
	Others sum `json:"others"`
	// EndedBefore ended with their device or process before the mark To.
	EndedBefore sum `json:"ended_before"`
	memory.AllLosses
}

// sum is a number of buffers, and of their call stacks.
type sum struct {
	Stacks int    `json:"stacks,omitempty"`
	Count  uint64 `json:"count"`
	Bytes  uint64 `json:"bytes"`
}

// row is the survivors of a call stack.
//
//schema:survivors
type row struct {
	Bytes uint64 `json:"bytes"`
	Count uint64 `json:"count"`
	// Allocated is the number of all buffers that the stack allocated.
	Allocated uint64 `json:"allocated"`
	// Class is leaked, undecided, stable, retained or suppressed; Growing is true if it is one of the
	// first two.
	Class   string `json:"class" schema:"leaked|undecided|stable|retained|suppressed"`
	Growing bool   `json:"growing"`
	// Verdict says in words that survivors were allocated in Rises of Intervals intervals.
	// Retained buffers have none of the three.
	Verdict   string `json:"verdict,omitempty"`
	Intervals int    `json:"intervals,omitempty"`
	Rises     int    `json:"rises,omitempty"`
	// GrowthBytes is how many bytes of the survivors were allocated from each mark to the
	// next.
	GrowthBytes []uint64 `json:"growth_bytes,omitempty"`
	OldestNs    uint64   `json:"oldest_ns"`
	// Name is the innermost line of the user's own code and the operation.
	Name      string `json:"name"`
	Component string `json:"component,omitempty"`
	// BufferClass is what the buffers are for; left out if that is not known.
	BufferClass string `json:"buffer_class,omitempty" schema:"class"`
	// Containers are what holds the survivors of a leak, the most bytes first.
	Containers []analyze.Container `json:"containers,omitempty"`
	// Kind and Why describe memory that the runtime retains.
	Kind    string       `json:"kind,omitempty"`
	Why     string       `json:"why,omitempty"`
	PID     int          `json:"pid" user:"user"`
	Region  string       `json:"region" schema:"banked_region"`
	Layout  string       `json:"layout" schema:"layout"`
	Devices []int        `json:"devices"`
	Stack   *event.Stack `json:"stack,omitempty"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	leaked, undecided := sumOf(p.leaks), sumOf(p.undecided)
	doc := Document{
		V: 1, TimeNs: p.NowNs, CutShort: p.Cut, WatchedNs: p.WatchedNs, Allocated: p.Allocated, StepMarks: p.StepMarks,
		LeakedBytes: leaked.Bytes, LeakedCount: leaked.Count,
		Leaks: p.rows(p.leaks), Undecided: p.rows(p.undecided), UndecidedBytes: undecided.Bytes, UndecidedCount: undecided.Count,
		Left: p.rows(p.stable), Kept: p.rows(p.retained),
		Steady:      sumOf(p.steady),
		Suppressed:  sumOf(p.suppressed),
		Others:      sum{0, p.Others.Count, p.Others.Bytes},
		EndedBefore: sum{0, p.EndedBefore.Count, p.EndedBefore.Bytes},
		Marks:       p.Marks,
		AllLosses:   p.Losses,
	}
	if n := len(p.Marks); n > 0 {
		doc.From, doc.To = &p.Marks[0], &p.Marks[n-1]
	}
	if p.By != "stack" {
		doc.By, doc.Groups = p.By, p.groups()
	}
	return &doc
}

func (p *Page) rows(list []leak) []row {
	rows := []row{}
	for i := range list {
		l := &list[i]
		one := row{
			Bytes: l.Bytes, Count: l.Count, Allocated: l.Allocated, Class: string(l.Verdict.Class), Growing: l.Grows && l.By == nil,
			OldestNs: l.AgeNs, Name: p.names.Name(&l.row), Component: l.row.Component, BufferClass: l.row.Class().String(),
			Containers: l.Containers, PID: l.PID, Region: l.Region.String(), Layout: l.row.Layout, Devices: l.Devices,
			Stack: l.Stack, GrowthBytes: page.Each(l.Births, func(births memory.Amount) uint64 { return births.Bytes }),
		}
		if l.By != nil {
			one.Kind, one.Why = l.By.Name, l.By.Why
		} else {
			one.Verdict, one.Intervals, one.Rises = p.verdict(l), l.Intervals, l.Rises
		}
		rows = append(rows, one)
	}
	return rows
}
