package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A peakRow is a line of what a peak was made of.
type peakRow struct {
	key string
	// count is how many buffers, or circular buffers.
	count, bytes uint64
	// programs are the bytes of each program, of which bytes is the most; nil where the
	// row is of buffers.
	programs map[peakProgram]uint64
	// pid and callers are those of rows by stack.
	pid     int
	callers []string
}

type peakProgram struct {
	pid int
	id  uint64
}

// peakRows groups what a peak was made of.
type peakRows struct {
	page  *peakPage
	index map[peakRowKey]int
	list  []peakRow
}

// A peakRowKey tells rows apart. Stacks are one where they differ in nothing that is
// shown: an operation that allocates in two places has one row.
type peakRowKey struct {
	text, callers string
	pid           int
}

// row is the one for what an allocation stands for.
func (r *peakRows) row(a *allocation, stack *event.Stack) *peakRow {
	if a.site = r.page.sites[stackID(stack)]; a.site == nil {
		a.site = r.page.list.newSite(stack)
		r.page.sites[stackID(stack)] = a.site
	}
	k := peakRowKey{text: r.page.key(a)}
	var calls []string
	if r.page.by == "stack" {
		calls = page.Callers(a.site.stack.Frames())
		k.pid, k.callers = a.pid, strings.Join(calls, "\n")
	}
	at, ok := r.index[k]
	if !ok {
		at = len(r.list)
		r.index[k] = at
		r.list = append(r.list, peakRow{key: k.text, pid: k.pid, callers: calls})
	}
	return &r.list[at]
}

// key is what an allocation is counted as.
func (p *peakPage) key(a *allocation) string {
	switch p.by {
	case "chip": // the peak is of one chip: what else it is on is to be told
		switch {
		case a.region == event.CB:
			return "each chip's own"
		case len(a.devices) == 1:
			return "this chip alone"
		}
		return page.Chips(a.devices)
	case "process":
		return p.process(a.pid)
	case "op", "file", "component":
		if a.before {
			return p.list.title(&allocation{before: true, site: &site{}}, "")
		}
	}
	grouping := groupingOf(p.by)
	return grouping.keys(p.list, a)[0]
}

// process is what a process is called, also one that ended.
func (p *peakPage) process(pid int) string {
	name := ""
	for i := range p.list.snap.Processes {
		if one := &p.list.snap.Processes[i]; one.PID == pid && (name == "" || one.Exit == nil) {
			name = " " + page.ProcessName(one)
		}
	}
	return fmt.Sprintf("PID %d%s", pid, name)
}

// sorted are the rows, most first.
func (r *peakRows) sorted() []peakRow {
	slices.SortStableFunc(r.list, func(a, b peakRow) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return r.list
}

// holderRows are the buffers of a peak.
func (p *peakPage) holderRows(peak *aggregate.RegionPeak) []peakRow {
	rows := &peakRows{page: p, index: make(map[peakRowKey]int)}
	for i := range peak.Holders {
		h := &peak.Holders[i]
		row := rows.row(&allocation{
			devices: h.Devices, region: peak.Region, pid: h.PID, before: h.BeforeAttach, layout: h.Layout.String(),
		}, h.Stack)
		row.count += h.Count
		row.bytes += h.Bytes
	}
	return rows.sorted()
}

// programRows are the circular buffers of a peak. Of several programs in one row, which
// use the same space, it is the one that has most.
func (p *peakPage) programRows(peak *aggregate.RegionPeak) []peakRow {
	rows := &peakRows{page: p, index: make(map[peakRowKey]int)}
	for i := range peak.Programs {
		g := &peak.Programs[i]
		row := rows.row(&allocation{
			devices: []int{peak.Device}, region: event.CB, pid: g.PID, before: g.BeforeAttach, layout: g.Kind.String(),
		}, g.Stack)
		if row.programs == nil {
			row.programs = make(map[peakProgram]uint64)
		}
		program := peakProgram{g.PID, g.ProgramID}
		row.programs[program] += g.Bytes
		row.bytes = max(row.bytes, row.programs[program])
		row.count += g.Count
	}
	return rows.sorted()
}
