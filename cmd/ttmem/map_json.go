package main

import (
	"bufio"
	"encoding/json"
	"io"

	"ttmem/aggregate/addresses"
)

// mapDocument is what `ttmem map --json` prints.
type mapDocument struct {
	V       int          `json:"v"`
	Regions []*mapRegion `json:"regions"`
	// Lost is how many events were lost, by cause.
	Lost  map[string]uint64 `json:"lost"`
	Notes []string          `json:"notes,omitempty"`
}

// A mapRegion is a region of chips on which it is used alike.
type mapRegion struct {
	Devices []int  `json:"devices"`
	Region  string `json:"region"`
	TimeNs  uint64 `json:"time_ns"`
	Banks   uint32 `json:"banks"`
	// StartAddress and EndAddress are where it lies in each bank; left out, with what is
	// free, where that is not known.
	StartAddress  uint64               `json:"start_address,omitempty"`
	EndAddress    uint64               `json:"end_address,omitempty"`
	Free          *addresses.FreeSpace `json:"free,omitempty"`
	Fragmentation *float64             `json:"fragmentation,omitempty"`
	Blocks        []mapBlock           `json:"blocks"`
	Holes         []mapHole            `json:"holes"`
	Statics       []mapStatic          `json:"statics"`
}

type mapBlock struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	PID          int    `json:"pid"`
	BufferID     uint64 `json:"buffer_id"`
	SinceNs      uint64 `json:"since_ns"`
	BeforeAttach bool   `json:"before_attach,omitempty"`
	Name         string `json:"name"`
}

type mapHole struct {
	Address      uint64 `json:"address"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
}

type mapStatic struct {
	Address      uint64 `json:"address"`
	BytesPerCore uint64 `json:"bytes_per_core"`
	Programs     int    `json:"programs"`
	Name         string `json:"name"`
}

func (m *mapPage) writeJSON(w io.Writer) error {
	m.order()
	doc := &mapDocument{V: 1, Regions: []*mapRegion{}, Lost: m.snap.Lost, Notes: m.notes}
	for _, r := range m.maps {
		one := &mapRegion{
			Devices: r.devices, Region: r.space.Region.String(), TimeNs: r.nowNs, Banks: r.space.Banks,
			Blocks: []mapBlock{}, Holes: []mapHole{}, Statics: []mapStatic{},
		}
		if r.space.Known() {
			part := r.fragmentation()
			one.StartAddress, one.EndAddress, one.Free, one.Fragmentation = r.space.Start, r.space.End, &r.space.FreeSpace, &part
		}
		rows := r.rows()
		for i := range rows {
			row := &rows[i]
			switch {
			case row.block != nil:
				one.Blocks = append(one.Blocks, mapBlock{
					row.address, row.bytes, row.block.PID, row.block.BufferID, row.block.SinceNs, row.block.BeforeAttach, m.title(row, " · "),
				})
			case row.static != nil:
				one.Statics = append(one.Statics, mapStatic{row.address, row.bytes, row.programs, m.title(row, " · ")})
			default:
				one.Holes = append(one.Holes, mapHole{row.address, row.bytes})
			}
		}
		doc.Regions = append(doc.Regions, one)
	}
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(doc); err != nil {
		return err
	}
	return out.Flush()
}
