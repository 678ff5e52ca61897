package memmap

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

// Document is the output of `ttmem map --json`.
type Document struct {
	V       int       `json:"v"`
	Regions []*Region `json:"regions"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// A Region is a region of chips that use it in the same way.
type Region struct {
	Devices []int  `json:"devices"`
	Region  string `json:"region" schema:"banked_region"`
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	Banks   uint32 `json:"banks"`
	// StartAddress and EndAddress are its range in each bank. They and Free are left out if the
	// range is unknown.
	StartAddress  uint64            `json:"start_address,omitempty"`
	EndAddress    uint64            `json:"end_address,omitempty"`
	Free          *memory.FreeSpace `json:"free,omitempty"`
	Fragmentation *float64          `json:"fragmentation,omitempty"`
	Blocks        []Block           `json:"blocks"`
	Holes         []Hole            `json:"holes"`
	Statics       []Static          `json:"statics"`
}

type Block struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	PID          int    `json:"pid" user:"user"`
	BufferID     uint64 `json:"buffer_id"`
	SinceNs      uint64 `json:"since_ns" wall:"since_wall_ns"`
	BeforeAttach bool   `json:"before_attach,omitempty"`
	Name         string `json:"name"`
	// Class is what the buffer is for; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// Cores are x0, y0, x1, y1 of the cores that a buffer on single cores is on.
	Cores [][4]uint16 `json:"cores,omitempty"`
	// Owner and Tensor are left out if they are not known.
	Owner  string `json:"owner,omitempty"`
	Tensor string `json:"tensor,omitempty"`
}

type Hole struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
}

type Static struct {
	Address      uint64 `json:"address"`
	BytesPerCore uint64 `json:"bytes_per_core"`
	Programs     int    `json:"programs"`
	Name         string `json:"name"`
}

// Document returns the JSON document.
func (m *Page) Document() any {
	m.order()
	doc := &Document{V: 1, Regions: []*Region{}, AllLosses: m.Losses, Notes: m.Notes}
	for _, r := range m.Maps {
		one := &Region{
			Devices: r.devices, Region: r.Space.Region.String(), TimeNs: r.nowNs, Banks: r.Space.Banks,
			Blocks: []Block{}, Holes: []Hole{}, Statics: []Static{},
		}
		if r.Space.Known() {
			part := r.fragmentation()
			one.StartAddress, one.EndAddress, one.Free, one.Fragmentation = r.Space.Start, r.Space.End, &r.Space.FreeSpace, &part
		}
		one.Blocks, one.Holes = slices.Grow(one.Blocks, len(r.Space.Blocks)), slices.Grow(one.Holes, len(r.Space.Holes))
		for i := range r.Space.Blocks {
			b := &r.Space.Blocks[i]
			a := (&row{Buffer: b}).allocation(m.Names, r.nowNs)
			one.Blocks = append(one.Blocks, Block{
				b.Address, b.BytesPerBank, b.PID, b.BufferID, b.SinceNs, b.BeforeAttach, m.Names.Name(a), a.Class().String(), page.Rectangles(b.Cores()),
				b.Path, b.Tensor,
			})
		}
		for _, h := range r.Space.Holes {
			one.Holes = append(one.Holes, Hole{h.Address, h.Bytes})
		}
		for _, row := range r.staticRows() {
			one.Statics = append(one.Statics, Static{row.Address, row.BytesPerBank, row.programs, m.title(row, row.allocation(m.Names, r.nowNs), " · ")})
		}
		doc.Regions = append(doc.Regions, one)
	}
	return doc
}
