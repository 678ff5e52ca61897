package ops

import (
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
)

// Document is the output of `ttmem ops --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V      int    `json:"v"`
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	// Operations are in order of headroom, the least first. Omitted is the number that -n leaves
	// out, and Forgotten the number of dropped call stacks.
	Operations []operation `json:"operations"`
	Omitted    int         `json:"omitted"`
	Forgotten  uint64      `json:"forgotten"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// operation is the runs of programs from one call site.
//
//schema:operation
type operation struct {
	PID     int    `json:"pid" user:"user"`
	Process string `json:"process,omitempty"`
	Devices []int  `json:"devices"`
	// Runs is left out if unknown.
	Runs uint64 `json:"runs,omitempty"`
	// Replays is how many of the runs were replays of captured traces. Without Runs it is how many
	// traces it replayed whose programs are not known.
	Replays uint64 `json:"replays,omitempty"`
	// Failures is how often it failed. Peak is all 0 if it never ran.
	Failures uint64 `json:"failures,omitempty"`
	FirstNs  uint64 `json:"first_ns" wall:"first_wall_ns"`
	LastNs   uint64 `json:"last_ns" wall:"last_wall_ns"`
	Peak     peak   `json:"peak"`
	alloc.Named
}

// peak is the run and the core with the least headroom.
type peak struct {
	TimeNs          uint64    `json:"time_ns" wall:"wall_ns"`
	ProgramID       uint64    `json:"program_id"`
	Device          int       `json:"device"`
	Core            [2]uint16 `json:"core"`
	Bytes           uint64    `json:"bytes"`
	TensorBytes     uint64    `json:"tensor_bytes"`
	CBBytes         uint64    `json:"cb_bytes"`
	DFBBytes        uint64    `json:"dfb_bytes"`
	ScratchpadBytes uint64    `json:"scratchpad_bytes"`
	// CapacityBytes and HeadroomBytes are left out if unknown.
	CapacityBytes uint64  `json:"capacity_bytes,omitempty"`
	HeadroomBytes *uint64 `json:"headroom_bytes,omitempty"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	list, omitted := page.First(p.operations(), p.Limit)
	doc := Document{
		V: 1, TimeNs: p.Snapshot.TimeNs, Operations: []operation{}, Omitted: omitted, Forgotten: p.forgotten,
		AllLosses: p.Losses(), Notes: page.WithOthers(p.Notes, p.Others),
	}
	for i := range list {
		o := &list[i]
		row, _ := p.row(&o.Operation)
		one := operation{
			PID: o.PID, Process: p.names.ProcessName(o.PID), Devices: o.Devices, Runs: o.Runs, Replays: o.Replays, Failures: o.Failures, FirstNs: o.FirstNs, LastNs: o.LastNs,
			Named: p.names.Named(&row),
			Peak: peak{
				TimeNs: o.Peak.TimeNs, ProgramID: o.Peak.ProgramID, Device: o.Peak.Device, Core: [2]uint16{o.Peak.X, o.Peak.Y},
				Bytes: o.Peak.Bytes(), TensorBytes: o.Peak.TensorBytes, CBBytes: o.Peak.CBBytes, DFBBytes: o.Peak.DFBBytes,
				ScratchpadBytes: o.Peak.ScratchpadBytes, CapacityBytes: o.Peak.CapacityBytes,
			},
		}
		if o.Peak.CapacityBytes > 0 {
			headroom := o.Peak.HeadroomBytes()
			one.Peak.HeadroomBytes = &headroom
		}
		doc.Operations = append(doc.Operations, one)
	}
	return doc
}
