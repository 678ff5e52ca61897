package leaks

import (
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// Document is the output of `ttmem leaks --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V int `json:"v"`
	page.Span
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
	Leaks []table.Object[survivors] `json:"leaks"`
	// By and Groups are the leaks counted by something other than the stack.
	By     string                `json:"by,omitempty"`
	Groups []table.Object[group] `json:"groups,omitempty"`
	// Undecided are the call sites that grow, but are too small to judge, the most bytes first. They
	// are not in LeakedBytes.
	UndecidedBytes uint64                    `json:"undecided_bytes"`
	UndecidedCount uint64                    `json:"undecided_count"`
	Undecided      []table.Object[survivors] `json:"undecided"`
	// Left survived between From and To, and is stable. Steady counts buffers that only replaced
	// others. Without marks, Left was allocated while running processes were watched.
	Left []table.Object[survivors] `json:"left"`
	// Kept is the memory that the runtime retains.
	Kept []table.Object[survivors] `json:"kept"`
	// Steady is the sum of other stable buffers.
	Steady sum `json:"steady"`
	// Suppressed is the sum of buffers that --suppress left out.
	Suppressed sum `json:"suppressed"`
	// Others ended with their device or process; there were too many of their call stacks to keep
	// them apart.
	Others sum `json:"others"`
	// HostGrowth are the processes whose memory on the host grew over the whole run.
	HostGrowth []hostGrowth `json:"host_growth,omitempty"`
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

// hostGrowth is the memory of a process on the host.
type hostGrowth struct {
	PID int `json:"pid" user:"user"`
	memory.HostMemory
}

// Document returns the JSON document.
func (p *Page) Document() any {
	leaked, undecided := sumOf(p.leaks), sumOf(p.undecided)
	doc := Document{
		V: 1, Span: p.Span, TimeNs: p.NowNs, CutShort: p.Cut, WatchedNs: p.WatchedNs, Allocated: p.Allocated, StepMarks: p.StepMarks,
		LeakedBytes: leaked.Bytes, LeakedCount: leaked.Count,
		Leaks: p.objects(p.leaks), Undecided: p.objects(p.undecided), UndecidedBytes: undecided.Bytes, UndecidedCount: undecided.Count,
		Left: p.objects(p.stable), Kept: p.objects(p.retained),
		Steady:      sumOf(p.steady),
		Suppressed:  sumOf(p.suppressed),
		Others:      sum{0, p.Others.Count, p.Others.Bytes},
		EndedBefore: sum{0, p.EndedBefore.Count, p.EndedBefore.Bytes},
		Marks:       p.Marks,
		AllLosses:   p.Losses,
	}
	for i := range p.Processes {
		one := &p.Processes[i]
		if len(page.HostGrowth([]memory.Process{*one}, p.Filter.PIDs, nil)) > 0 && p.whole() {
			doc.HostGrowth = append(doc.HostGrowth, hostGrowth{one.PID, *one.Host})
		}
	}
	if n := len(p.Marks); n > 0 {
		doc.From, doc.To = &p.Marks[0], &p.Marks[n-1]
	}
	if p.By != "stack" {
		doc.By, doc.Groups = p.By, table.Objects[group](groupColumns, p.groups())
	}
	return &doc
}

// objects are the survivors of call sites, as objects of a document.
func (p *Page) objects(list []*alloc.Row) []table.Object[survivors] {
	return table.Objects[survivors](p.fields(), list)
}

func (p *Page) fields() table.Columns {
	retained := func(value func(*name.Class) string) func(*alloc.Row) string {
		return func(r *alloc.Row) string {
			if r.Verdict.By == nil {
				return ""
			}
			return value(r.Verdict.By)
		}
	}
	rises := func(value func(*analyze.Verdict) int) func(*alloc.Row) int {
		return func(r *alloc.Row) int {
			if r.Verdict.By != nil {
				return 0
			}
			return value(r.Verdict)
		}
	}
	return table.Columns{
		table.Bytes("bytes", "bytes of the survivors", 0), table.Count("count", "number of survivors", 0),
		table.Field("allocated", "number of all buffers that the stack allocated", func(r *alloc.Row) uint64 { return r.Verdict.Allocated }),
		table.Field("class", "leaked, undecided, stable, retained or suppressed", func(r *alloc.Row) string { return string(r.Verdict.Class) }).Values("leaked|undecided|stable|retained|suppressed"),
		table.Field("growing", "whether it is one of the first two", func(r *alloc.Row) bool { return r.Verdict.Grows && r.Verdict.By == nil }),
		table.Optional("verdict", "says in words that survivors were allocated in rises of intervals intervals; retained buffers have none of the three",
			func(r *alloc.Row) string {
				if r.Verdict.By != nil {
					return ""
				}
				return p.verdict(r)
			}),
		table.Optional("intervals", "", rises(func(v *analyze.Verdict) int { return v.Intervals })),
		table.Optional("rises", "", rises(func(v *analyze.Verdict) int { return v.Rises })),
		table.Optional("growth_bytes", "bytes of the survivors that were allocated between each mark and the next", func(r *alloc.Row) []uint64 {
			return page.Each(r.Verdict.Births, func(births memory.Amount) uint64 { return births.Bytes })
		}),
		table.Oldest, table.Name(p.names), table.Component, table.Class.As("buffer_class"),
		table.Optional("containers", "the containers of the survivors of a leak, the most bytes first", func(r *alloc.Row) []analyze.Container { return r.Verdict.Containers }),
		table.Optional("kind", "the kind of memory that the runtime retains", retained(func(c *name.Class) string { return c.Name })),
		table.Optional("why", "why the runtime retains it", retained(func(c *name.Class) string { return c.Why })),
		table.PID, table.Region.Values("banked_region"), table.Layout, table.Devices, table.Stack,
	}
}

// survivors are the buffers of a call stack that survived.
//
//schema:survivors
type survivors struct{}

// Columns are those of survivors.
func (survivors) Columns() table.Columns { return (&Page{names: &alloc.Namer{}}).fields() }

// group is leaks that are counted together.
type group struct{}

// Columns are those of groups.
func (group) Columns() table.Columns { return groupColumns }
