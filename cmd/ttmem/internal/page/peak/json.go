package peak

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem peak --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V int `json:"v"`
	page.Span
	// The timelines go from BeginNs to EndNs.
	BeginNs uint64 `json:"begin_ns" wall:"begin_wall_ns"`
	EndNs   uint64 `json:"end_ns" wall:"end_wall_ns"`
	// Restored is true if there was memory before the first event.
	Restored bool     `json:"restored,omitempty"`
	By       string   `json:"by"`
	Peaks    []Region `json:"peaks"`
	// Omitted is the number of rows that -n leaves out of the lists of all peaks.
	Omitted   int           `json:"omitted,omitempty"`
	Processes []processJSON `json:"processes"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// Region is a region of chips with the same peak. The bytes of L1 are per core.
//
//schema:region_peak
type Region struct {
	Devices       []int  `json:"devices"`
	Region        string `json:"region" schema:"banked_region"`
	PerCore       bool   `json:"per_core,omitempty"`
	TimeNs        uint64 `json:"time_ns" wall:"wall_ns"`
	Bytes         uint64 `json:"bytes"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	StaticBytes   uint64 `json:"static_bytes,omitempty"`
	// AtLeast is true if programs may have run that were not reported.
	AtLeast bool `json:"at_least,omitempty"`
	// OtherUsersBytes is the part of users whose processes are not shown, of which
	// OtherUsersStaticBytes are circular buffers.
	OtherUsersBytes       uint64       `json:"other_users_bytes,omitempty"`
	OtherUsersStaticBytes uint64       `json:"other_users_static_bytes,omitempty"`
	Earlier               *earlierJSON `json:"earlier,omitempty"`
	// Groups are the groups of --by, and StaticGroups those of circular buffers.
	Groups       []table.Object[group]  `json:"groups"`
	StaticGroups []table.Object[group]  `json:"static_groups,omitempty"`
	Holders      []table.Object[holder] `json:"holders"`
	Programs     []table.Object[holder] `json:"programs,omitempty"`
	// Unused is what is held after its last use, if the highest peak of the buffers of a process is at this time and the
	// recording has at most 1 MiB.
	Unused   []unused      `json:"unused,omitempty"`
	Timeline timelineJSON  `json:"timeline"`
	Statics  *timelineJSON `json:"static_timeline,omitempty"`
}

// earlierJSON is a higher peak before the beginning.
type earlierJSON struct {
	TimeNs        uint64 `json:"time_ns" wall:"wall_ns"`
	Bytes         uint64 `json:"bytes"`
	CapacityBytes uint64 `json:"capacity_bytes,omitempty"`
}

// timelineJSON is the minimum and the maximum of each step of time.
//
//schema:timeline
type timelineJSON struct {
	BeginNs  uint64   `json:"begin_ns" wall:"begin_wall_ns"`
	StepNs   uint64   `json:"step_ns"`
	MinBytes []uint64 `json:"min_bytes"`
	MaxBytes []uint64 `json:"max_bytes"`
}

type processJSON struct {
	PID     int               `json:"pid" user:"user"`
	Name    string            `json:"name"`
	Regions []processPeakJSON `json:"regions"`
}

// processPeakJSON is the process's highest use of a region on one chip.
type processPeakJSON struct {
	region event.Region
	Region string `json:"region" schema:"banked_region"`
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	Bytes  uint64 `json:"bytes"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	doc := &Document{
		V: 1, Span: p.Span, BeginNs: p.beginNs, EndNs: p.endNs, Restored: p.restored, By: p.By,
		Peaks: []Region{}, Processes: p.processes(), AllLosses: *p.Losses, Notes: slices.Concat(p.About, p.Notes),
	}
	groups := p.columns("", 0, nil)
	for _, c := range p.regions {
		buffers, _ := p.names.AtPeak(&c.RegionPeak, &p.holders, "owner")
		r := Region{
			Devices: c.ids, Region: c.Region.String(), PerCore: c.Region == event.L1, TimeNs: c.TimeNs,
			Bytes: c.Bytes, CapacityBytes: c.CapacityBytes, StaticBytes: c.StaticBytes, AtLeast: c.AtLeast,
			OtherUsersBytes: c.OthersBytes, OtherUsersStaticBytes: c.OthersStaticBytes, Earlier: (*earlierJSON)(c.Earlier),
			Groups:       table.Objects[group](groups, p.rows(c.buffers, c.OthersBytes-c.OthersStaticBytes, false)),
			StaticGroups: table.Objects[group](groups, p.rows(c.statics, c.OthersStaticBytes, false)),
			Holders:      table.Objects[holder](p.holderFields(nil), buffers), Timeline: p.timelineJSON(c.Timeline),
			Unused: p.unusedAt(c),
		}
		if c.Region == event.L1 {
			line := p.timelineJSON(c.StaticTimeline)
			r.Statics = &line
			if len(c.Programs) > 0 {
				r.Programs = table.Objects[holder](p.holderFields(&c.Programs[0].ProgramID), c.statics)
			}
		}
		doc.Peaks = append(doc.Peaks, r)
	}
	for i := range doc.Peaks {
		r := &doc.Peaks[i]
		doc.Omitted += limit(&r.Groups, p.Limit) + limit(&r.StaticGroups, p.Limit) + limit(&r.Holders, p.Limit) + limit(&r.Programs, p.Limit)
	}
	return doc
}

func (p *Page) timelineJSON(t *memory.Timeline) timelineJSON {
	line := timelineJSON{BeginNs: t.BeginNs, StepNs: t.StepNs(), MinBytes: []uint64{}, MaxBytes: []uint64{}}
	for _, s := range t.Spans(p.endNs) {
		line.MinBytes, line.MaxBytes = append(line.MinBytes, s.Min), append(line.MaxBytes, s.Max)
	}
	line.StepNs = t.StepNs() // it may have grown
	return line
}

// processes returns the highest use of each region by each process, on the chip where it was
// highest.
func (p *Page) processes() []processJSON {
	list := []processJSON{}
	for i := range p.Snap.Processes {
		one := &p.Snap.Processes[i]
		doc := processJSON{PID: one.PID, Name: page.ProcessName(one), Regions: []processPeakJSON{}}
		for _, region := range page.Regions {
			if peak := processPeak(one, region); peak.Bytes > 0 && peak.TimeNs+1 >= p.Span.FromNs { // else it ended before
				doc.Regions = append(doc.Regions, peak)
			}
		}
		list = append(list, doc)
	}
	return list
}

func processPeak(one *memory.Process, region event.Region) processPeakJSON {
	peak := processPeakJSON{Region: region.String(), region: region}
	for i := range one.Devices {
		if u := page.UseOf(&one.Devices[i], region); u.PeakBytes > peak.Bytes {
			peak.Bytes, peak.TimeNs = u.PeakBytes, u.PeakTimeNs
		}
	}
	return peak
}

// limit cuts a list, and returns the number of rows that it left out.
func limit[T any](rows *[]T, most int) (omitted int) {
	*rows, omitted = page.First(*rows, most)
	return omitted
}
