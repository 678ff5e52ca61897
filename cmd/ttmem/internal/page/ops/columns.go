package ops

import (
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

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

func peakOf(o *memory.Operation) peak {
	p := peak{
		TimeNs: o.Peak.TimeNs, ProgramID: o.Peak.ProgramID, Device: o.Peak.Device, Core: [2]uint16{o.Peak.X, o.Peak.Y},
		Bytes: o.Peak.Bytes(), TensorBytes: o.Peak.TensorBytes, CBBytes: o.Peak.CBBytes, DFBBytes: o.Peak.DFBBytes,
		ScratchpadBytes: o.Peak.ScratchpadBytes, CapacityBytes: o.Peak.CapacityBytes,
	}
	if o.Peak.CapacityBytes > 0 {
		headroom := o.Peak.HeadroomBytes()
		p.HeadroomBytes = &headroom
	}
	return p
}

// fields are the fields of operations in JSON documents.
func (p *Page) fields() table.Columns {
	number := func(key, about string, value func(*memory.Operation) uint64) table.Column {
		return table.Field(key, about, func(r *alloc.Row) uint64 { return value(r.Operation) })
	}
	return append(table.Columns{
		table.PID,
		table.Optional("process", "the name of the process", func(r *alloc.Row) string { return p.names.ProcessName(r.PID) }),
		table.Field("devices", "the chips", func(r *alloc.Row) []int { return r.Operation.Devices }),
		number("runs", "left out if unknown", func(o *memory.Operation) uint64 { return o.Runs }).OrNone(),
		number("replays", "how many of the runs were replays of captured traces; without runs, how many traces it replayed whose programs are not known",
			func(o *memory.Operation) uint64 { return o.Replays }).OrNone(),
		number("failures", "how often it failed; peak is all 0 if it never ran", func(o *memory.Operation) uint64 { return o.Failures }).OrNone(),
		number("first_ns", "when it first ran", func(o *memory.Operation) uint64 { return o.FirstNs }).WithWall("first_wall_ns"),
		number("last_ns", "when it last ran", func(o *memory.Operation) uint64 { return o.LastNs }).WithWall("last_wall_ns"),
		table.Count("temporary_buffers", "how many of its buffers were freed before it had allocated two more", 0),
		table.Bytes("temporary_bytes", "their size in all banks of their chips", 0),
		table.Field("peak", "the run and the core with the least headroom", func(r *alloc.Row) peak { return peakOf(r.Operation) }),
	}, table.Site(p.names)...)
}

// columns are the columns of the text. Bytes are in KiB.
func columns(all []*alloc.Row) table.Columns {
	text := func(head string, width int, text func(*memory.Operation) string) table.Column {
		return table.Text(head, width, func(r *alloc.Row) string {
			if r.Operation == nil { // other operations, whose figures do not add up
				return ""
			}
			return text(r.Operation)
		})
	}
	ifRan := func(head string, width int, value func(*memory.Operation) string) table.Column {
		return text(head, width, func(o *memory.Operation) string {
			if o.OnlyFailed() || o.OnlyReplayed() {
				return "-"
			}
			return value(o)
		})
	}
	bytes := func(head string, width int, value func(*memory.CoreUse) uint64) table.Column {
		return ifRan(head, width, func(o *memory.Operation) string { return kib(value(&o.Peak)) })
	}
	part := func(head string, width int, value func(*memory.CoreUse) uint64) table.Column {
		return bytes(head, width, value).IfAny(func(r *alloc.Row) bool { return r.Operation != nil && value(&r.Operation.Peak) > 0 })
	}
	counted := func(head string, width int, value func(*memory.Operation) uint64) table.Column {
		return text(head, width, func(o *memory.Operation) string { return page.Grouped(value(o)) }).
			IfAny(func(r *alloc.Row) bool { return r.Operation != nil && value(r.Operation) > 0 })
	}
	chips := slices.ContainsFunc(all, func(r *alloc.Row) bool { return r.Operation.Peak.Device != all[0].Operation.Peak.Device })
	return table.Columns{
		ifRan("headroom", 9, func(o *memory.Operation) string {
			if o.Peak.CapacityBytes == 0 {
				return "?"
			}
			return kib(o.Peak.HeadroomBytes())
		}),
		bytes("peak", 8, (*memory.CoreUse).Bytes),
		bytes("tensors", 8, func(u *memory.CoreUse) uint64 { return u.TensorBytes }),
		part("CBs", 7, func(u *memory.CoreUse) uint64 { return u.CBBytes }),
		part("DFBs", 7, func(u *memory.CoreUse) uint64 { return u.DFBBytes }),
		part("scratch", 8, func(u *memory.CoreUse) uint64 { return u.ScratchpadBytes }),
		text("chip", 5, func(o *memory.Operation) string { return fmt.Sprint(o.Peak.Device) }).IfAny(func(*alloc.Row) bool { return chips }),
		ifRan("core", 6, func(o *memory.Operation) string { return fmt.Sprintf("%d-%d", o.Peak.X, o.Peak.Y) }),
		text("runs", 7, func(o *memory.Operation) string {
			if o.Runs == 0 && !o.OnlyFailed() {
				return "?"
			}
			return page.Grouped(o.Runs)
		}),
		counted("replays", 9, func(o *memory.Operation) uint64 { return o.Replays }),
		counted("failed", 8, func(o *memory.Operation) uint64 { return o.Failures }),
	}
}
