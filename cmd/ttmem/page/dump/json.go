package dump

import (
	"iter"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
)

// head is the common part of the output of `ttmem dump --json`.
type head struct {
	V int `json:"v"`
	// TimeNs is the listed moment, by CLOCK_MONOTONIC.
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	// Moments are the peaks of the regions, if --at peak lists several.
	Moments []Moment `json:"moments,omitempty"`
	// Omitted is the number of rows that -n leaves out.
	Omitted int `json:"omitted"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// A Moment is the time at which the regions of some chips are listed.
type Moment struct {
	Devices []int    `json:"devices"`
	Regions []string `json:"regions" schema:"region"`
	TimeNs  uint64   `json:"time_ns" wall:"wall_ns"`
}

// Document is the output of `ttmem dump --json`.
type Document struct {
	head
	Buffers iter.Seq[*buffer] `json:"buffers"`
	Statics iter.Seq[*static] `json:"statics"`
}

// GroupsDocument is the output of `ttmem dump --by WHAT --json`.
type GroupsDocument struct {
	head
	By     string   `json:"by"`
	Groups []*group `json:"groups"`
}

// place has the common fields of buffers and static buffers.
type place struct {
	PID     int    `json:"pid" user:"user"`
	Devices []int  `json:"devices"`
	Chips   int    `json:"chips"` // including chips that are not selected
	Address uint64 `json:"address"`
	SinceNs uint64 `json:"since_ns" wall:"since_wall_ns"`
	// AgeNs is left out for an allocation from before the attach.
	AgeNs        *uint64 `json:"age_ns,omitempty"`
	BeforeAttach bool    `json:"before_attach,omitempty"`
	alloc.Named
}

// buffer is a live buffer.
//
//schema:buffer
type buffer struct {
	place
	TID           int32  `json:"tid"`
	Comm          string `json:"comm"`
	Region        string `json:"region" schema:"banked_region"`
	Layout        string `json:"layout" schema:"layout"`
	BufferID      uint64 `json:"buffer_id"`
	Object        uint64 `json:"object"`
	SizeBytes     uint64 `json:"size_bytes"`
	PageSizeBytes uint64 `json:"page_size_bytes"`
	BytesPerBank  uint64 `json:"bytes_per_bank"`
	// Banks are those with data of the buffer. The allocator reserves BytesPerBank in ReservedBanks:
	// AllocatedBytes on each chip, of which the data takes DataBytes.
	Banks          uint16 `json:"banks"`
	ReservedBanks  uint16 `json:"reserved_banks"`
	DataBytes      uint64 `json:"data_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// PerCore marks a buffer on single cores: Cores, as x0, y0, x1, y1. Cores is left out if
	// unknown.
	PerCore bool        `json:"per_core,omitempty"`
	Cores   [][4]uint16 `json:"cores,omitempty"`
	// Owner is the path that leads to the buffer in the process, and Tensor the tensor there; both
	// are left out if they are not known.
	Owner  string `json:"owner,omitempty"`
	Tensor string `json:"tensor,omitempty"`
}

// static is a circular or dataflow buffer, or a scratchpad.
//
//schema:static
type static struct {
	place
	ProgramID    uint64      `json:"program_id"`
	StaticKind   string      `json:"static_kind" schema:"static_kind"`
	Global       bool        `json:"global,omitempty"`
	BytesPerCore uint64      `json:"bytes_per_core"`
	Cores        [][4]uint16 `json:"cores"`
}

func (l *List) head(omitted int) head {
	return head{V: 1, TimeNs: l.NowNs, Moments: l.Moments, Omitted: omitted, AllLosses: l.Losses, Notes: l.Notes}
}

func (l *List) place(a *alloc.Row) place {
	p := place{
		PID: a.PID, Devices: a.Devices, Chips: a.Chips, Address: a.Address, SinceNs: a.SinceNs, BeforeAttach: a.BeforeAttach,
		Named: l.Namer.Named(a),
	}
	if !a.BeforeAttach {
		age := a.Age()
		p.AgeNs = &age
	}
	return p
}

// Document returns the JSON document.
func (l *List) Document() any {
	rows := l.Rows[:len(l.Rows)-l.cutOff]
	return &Document{
		head: l.head(l.cutOff),
		Buffers: func(yield func(*buffer) bool) {
			for _, a := range rows {
				if a.Buffer != nil && !yield(l.buffer(a)) {
					return
				}
			}
		},
		Statics: func(yield func(*static) bool) {
			for _, a := range rows {
				if a.Static != nil && !yield(l.static(a)) {
					return
				}
			}
		},
	}
}

func (l *List) buffer(a *alloc.Row) *buffer {
	b := a.Buffer
	return &buffer{
		place: l.place(a), TID: b.TID, Comm: b.Comm, Region: b.Region.String(), Layout: a.Layout,
		BufferID: b.BufferID, Object: b.Object, SizeBytes: b.SizeBytes, PageSizeBytes: b.PageSizeBytes,
		BytesPerBank: b.BytesPerBank, Banks: b.DataBanks, ReservedBanks: b.Banks, DataBytes: b.DataBytes(), AllocatedBytes: a.Bytes(),
		PerCore: b.PerCore, Cores: page.Rectangles(b.Cores()), Owner: b.Path, Tensor: b.Tensor,
	}
}

func (l *List) static(a *alloc.Row) *static {
	return &static{
		place: l.place(a), ProgramID: a.Static.ProgramID, StaticKind: a.Layout, Global: a.Static.Global,
		BytesPerCore: a.BytesPerBank, Cores: page.Rectangles(a.Static.Cores),
	}
}

// Document returns the JSON document.
func (g *Groups) Document() any {
	shown, omitted := page.First(g.groups, g.limit)
	return &GroupsDocument{head: g.head(omitted), By: g.by, Groups: shown}
}
