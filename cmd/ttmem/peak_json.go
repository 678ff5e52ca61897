package main

import (
	"encoding/json"
	"io"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// peakDocument is what `ttmem peak --json` prints. Times are CLOCK_MONOTONIC.
type peakDocument struct {
	V int `json:"v"`
	// The timelines go from BeginNs to EndNs.
	BeginNs uint64 `json:"begin_ns"`
	EndNs   uint64 `json:"end_ns"`
	// Restored is true where the events begin with what was there by then.
	Restored  bool              `json:"restored,omitempty"`
	By        string            `json:"by"`
	Peaks     []peakRegion      `json:"peaks"`
	Processes []peakProcess     `json:"processes"`
	Lost      map[string]uint64 `json:"lost"`
	Notes     []string          `json:"notes,omitempty"`
	// Stacks are the frames, innermost first, of what has their index.
	Stacks []*event.Stack `json:"stacks"`
}

// peakRegion is a region of chips that are alike. The bytes of L1 are per core.
type peakRegion struct {
	Devices       []int        `json:"devices"`
	Region        string       `json:"region"`
	PerCore       bool         `json:"per_core,omitempty"`
	TimeNs        uint64       `json:"time_ns"`
	Bytes         uint64       `json:"bytes"`
	CapacityBytes uint64       `json:"capacity_bytes"`
	StaticBytes   uint64       `json:"static_bytes,omitempty"`
	Earlier       *peakEarlier `json:"earlier,omitempty"`
	// Groups are what --by counts, and StaticGroups of circular buffers.
	Groups       []peakGroup   `json:"groups"`
	StaticGroups []peakGroup   `json:"static_groups,omitempty"`
	Holders      []peakHolder  `json:"holders"`
	Programs     []peakHolder  `json:"programs,omitempty"`
	Timeline     timelineJSON  `json:"timeline"`
	Statics      *timelineJSON `json:"static_timeline,omitempty"`
}

type peakEarlier struct {
	TimeNs        uint64 `json:"time_ns"`
	Bytes         uint64 `json:"bytes"`
	CapacityBytes uint64 `json:"capacity_bytes,omitempty"`
}

type peakGroup struct {
	Key string `json:"key"`
	// PID and Callers are those of groups by stack: the user's calls that led to the
	// one in Key, innermost first.
	PID      int      `json:"pid,omitempty"`
	Callers  []string `json:"callers,omitempty"`
	Bytes    uint64   `json:"bytes"`
	Count    uint64   `json:"count"`
	Programs int      `json:"programs,omitempty"`
}

// peakHolder is what one call stack had: of buffers, or for a program.
type peakHolder struct {
	PID          int     `json:"pid"`
	ProgramID    *uint64 `json:"program_id,omitempty"`
	Devices      []int   `json:"devices,omitempty"`
	Layout       string  `json:"layout,omitempty"`
	StaticKind   string  `json:"static_kind,omitempty"`
	BeforeAttach bool    `json:"before_attach,omitempty"`
	Bytes        uint64  `json:"bytes"`
	Count        uint64  `json:"count"`
	Name         string  `json:"name"`
	Op           string  `json:"op,omitempty"`
	Function     string  `json:"function,omitempty"`
	File         string  `json:"file,omitempty"`
	Line         int     `json:"line,omitempty"`
	Component    string  `json:"component,omitempty"`
	Stack        *int    `json:"stack,omitempty"`
}

// timelineJSON has a minimum and a maximum for each step.
type timelineJSON struct {
	BeginNs  uint64   `json:"begin_ns"`
	StepNs   uint64   `json:"step_ns"`
	MinBytes []uint64 `json:"min_bytes"`
	MaxBytes []uint64 `json:"max_bytes"`
}

type peakProcess struct {
	PID     int               `json:"pid"`
	Name    string            `json:"name"`
	Regions []peakProcessPeak `json:"regions"`
}

// peakProcessPeak is the most that the process had of a region on one chip.
type peakProcessPeak struct {
	Region string `json:"region"`
	TimeNs uint64 `json:"time_ns"`
	Bytes  uint64 `json:"bytes"`
}

func (p *peakPage) writeJSON(w io.Writer) error {
	doc := &peakDocument{
		V: 1, BeginNs: p.beginNs, EndNs: p.endNs, Restored: p.restored, By: p.by,
		Peaks: []peakRegion{}, Processes: p.processesJSON(), Lost: p.list.Snap.Lost, Notes: slices.Concat(p.about, p.notes), Stacks: []*event.Stack{},
	}
	stacks := make(map[uint64]*int) // by id
	holder := func(h peakHolder, stack *event.Stack, before bool) peakHolder {
		a := &alloc.Row{BeforeAttach: before, Site: p.sites[alloc.StackID(stack)]}
		h.BeforeAttach, h.Name, h.Component = before, p.list.Title(a, " · "), a.Component
		h.Op, h.Function, h.File, h.Line = a.Name.Op, a.Name.Call.Function, a.Name.Call.File, a.Name.Call.Line
		if stack != nil {
			if stacks[stack.ID] == nil {
				n := len(doc.Stacks)
				stacks[stack.ID] = &n
				doc.Stacks = append(doc.Stacks, stack)
			}
			h.Stack = stacks[stack.ID]
		}
		return h
	}
	for _, c := range p.regions {
		r := peakRegion{
			Devices: c.ids, Region: c.Region.String(), PerCore: c.Region == event.L1, TimeNs: c.TimeNs,
			Bytes: c.Bytes, CapacityBytes: c.CapacityBytes, StaticBytes: c.StaticBytes,
			Groups: groupsJSON(c.rows), StaticGroups: groupsJSON(c.programs), Holders: []peakHolder{},
			Timeline: p.timelineJSON(c.Timeline),
		}
		if e := c.Earlier; e != nil {
			r.Earlier = &peakEarlier{e.TimeNs, e.Bytes, e.CapacityBytes}
		}
		for i := range c.Holders {
			h := &c.Holders[i]
			r.Holders = append(r.Holders, holder(peakHolder{
				PID: h.PID, Devices: h.Devices, Layout: h.Layout.String(), Bytes: h.Bytes, Count: h.Count,
			}, h.Stack, h.BeforeAttach))
		}
		for i := range c.Programs {
			g := &c.Programs[i]
			r.Programs = append(r.Programs, holder(peakHolder{
				PID: g.PID, ProgramID: &g.ProgramID, StaticKind: g.Kind.String(), Bytes: g.Bytes, Count: g.Count,
			}, g.Stack, g.BeforeAttach))
		}
		if c.Region == event.L1 {
			line := p.timelineJSON(c.StaticTimeline)
			r.Statics = &line
		}
		doc.Peaks = append(doc.Peaks, r)
	}
	return json.NewEncoder(w).Encode(doc)
}

func groupsJSON(rows []peakRow) []peakGroup {
	groups := make([]peakGroup, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		groups = append(groups, peakGroup{row.key, row.pid, row.callers, row.bytes, row.count, len(row.programs)})
	}
	return groups
}

func (p *peakPage) timelineJSON(t *aggregate.Timeline) timelineJSON {
	line := timelineJSON{BeginNs: t.BeginNs, StepNs: t.StepNs(), MinBytes: []uint64{}, MaxBytes: []uint64{}}
	for _, s := range t.Spans(p.endNs) {
		line.MinBytes, line.MaxBytes = append(line.MinBytes, s.Min), append(line.MaxBytes, s.Max)
	}
	line.StepNs = t.StepNs() // it may have grown
	return line
}

func (p *peakPage) processesJSON() []peakProcess {
	list := []peakProcess{}
	for i := range p.list.Snap.Processes {
		one := &p.list.Snap.Processes[i]
		doc := peakProcess{PID: one.PID, Name: page.ProcessName(one), Regions: []peakProcessPeak{}}
		for _, region := range peakRegions {
			if peak := processPeak(one, region); peak.Bytes > 0 {
				doc.Regions = append(doc.Regions, peakProcessPeak{region.String(), peak.TimeNs, peak.Bytes})
			}
		}
		list = append(list, doc)
	}
	return list
}
