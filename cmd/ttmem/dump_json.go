package main

import (
	"io"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// dumpHead is what `ttmem dump --json` prints in any case.
type dumpHead struct {
	V int `json:"v"`
	// TimeNs is CLOCK_MONOTONIC of what is listed.
	TimeNs uint64 `json:"time_ns"`
	// Moments are when each region was fullest, where --at peak lists several.
	Moments []dumpMoment `json:"moments,omitempty"`
	// Omitted is how many were not listed because of -n.
	Omitted int               `json:"omitted"`
	Lost    map[string]uint64 `json:"lost"`
	Notes   []string          `json:"notes,omitempty"`
}

// A dumpMoment is when the regions of some chips are listed.
type dumpMoment struct {
	Devices []int    `json:"devices"`
	Regions []string `json:"regions"`
	TimeNs  uint64   `json:"time_ns"`
}

// dumpList is what it prints without --by.
type dumpList struct {
	dumpHead
	Buffers []*dumpBuffer `json:"buffers"`
	Statics []*dumpStatic `json:"statics"`
	// Stacks are the frames, innermost first, of what has their index.
	Stacks []*event.Stack `json:"stacks"`
}

// dumpGroups is what it prints with --by.
type dumpGroups struct {
	dumpHead
	By     string       `json:"by"`
	Groups []*dumpGroup `json:"groups"`
}

// dumpPlace is what buffers and static buffers have in common.
type dumpPlace struct {
	PID     int    `json:"pid"`
	Devices []int  `json:"devices"`
	Chips   int    `json:"chips"` // with those that were not asked for
	Address uint64 `json:"address"`
	SinceNs uint64 `json:"since_ns"`
	// AgeNs is left out where it was there before the attach.
	AgeNs        *uint64 `json:"age_ns,omitempty"`
	BeforeAttach bool    `json:"before_attach,omitempty"`
	Name         string  `json:"name"`
	Op           string  `json:"op,omitempty"`
	Function     string  `json:"function,omitempty"`
	File         string  `json:"file,omitempty"`
	Line         int     `json:"line,omitempty"`
	Component    string  `json:"component,omitempty"`
	Stack        *int    `json:"stack,omitempty"`
}

type dumpBuffer struct {
	dumpPlace
	TID            int    `json:"tid"`
	Comm           string `json:"comm"`
	Region         string `json:"region"`
	Layout         string `json:"layout"`
	BufferID       uint64 `json:"buffer_id"`
	Object         uint64 `json:"object"`
	SizeBytes      uint64 `json:"size_bytes"`
	PageSizeBytes  uint64 `json:"page_size_bytes"`
	BytesPerBank   uint64 `json:"bytes_per_bank"`
	Banks          uint32 `json:"banks"`
	AllocatedBytes uint64 `json:"allocated_bytes"` // on each chip
}

type dumpStatic struct {
	dumpPlace
	ProgramID    uint64      `json:"program_id"`
	StaticKind   string      `json:"static_kind"`
	Global       bool        `json:"global,omitempty"`
	BytesPerCore uint64      `json:"bytes_per_core"`
	Cores        [][4]uint16 `json:"cores"`
}

func (l *listing) head(omitted int) dumpHead {
	return dumpHead{V: 1, TimeNs: l.nowNs, Moments: l.moments, Omitted: omitted, Lost: l.snap.Lost, Notes: l.notes}
}

func (l *listing) place(a *allocation) dumpPlace {
	p := dumpPlace{
		PID: a.pid, Devices: a.devices, Chips: a.chips, Address: a.address, SinceNs: a.since, BeforeAttach: a.before,
		Name: l.title(a, " · "), Op: a.name.Op, Function: a.name.Call.Function, File: a.name.Call.File, Line: a.name.Call.Line,
		Component: a.component,
	}
	if !a.before {
		age := a.age()
		p.AgeNs = &age
	}
	return p
}

func (l *listing) writeJSON(w io.Writer) error {
	doc := &dumpList{dumpHead: l.head(l.cutOff), Buffers: []*dumpBuffer{}, Statics: []*dumpStatic{}, Stacks: []*event.Stack{}}
	indices := make(map[*event.Stack]*int)
	rows := l.rows[:len(l.rows)-l.cutOff]
	for i := range rows {
		a := &rows[i]
		place := l.place(a)
		if a.stack != nil {
			if indices[a.stack] == nil {
				n := len(doc.Stacks)
				indices[a.stack] = &n
				doc.Stacks = append(doc.Stacks, a.stack)
			}
			place.Stack = indices[a.stack]
		}
		if b := a.buffer; b != nil {
			doc.Buffers = append(doc.Buffers, &dumpBuffer{
				dumpPlace: place, TID: b.TID, Comm: b.Comm, Region: b.Region.String(), Layout: a.layout,
				BufferID: b.BufferID, Object: b.Object, SizeBytes: b.SizeBytes, PageSizeBytes: b.PageSizeBytes,
				BytesPerBank: b.BytesPerBank, Banks: b.Banks, AllocatedBytes: a.bytes(),
			})
			continue
		}
		s := &dumpStatic{
			dumpPlace: place, ProgramID: a.static.ProgramID, StaticKind: a.layout, Global: a.static.Global,
			BytesPerCore: a.perBank, Cores: [][4]uint16{},
		}
		for _, c := range a.static.Cores {
			s.Cores = append(s.Cores, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
		}
		doc.Statics = append(doc.Statics, s)
	}
	return page.JSON(w, doc)
}

// writeJSON writes the groups.
func (g *grouped) writeJSON(w io.Writer) error {
	return page.JSON(w, &dumpGroups{dumpHead: g.head(g.cutOff), By: g.by, Groups: g.groups[:len(g.groups)-g.cutOff]})
}
