package replay

import (
	"fmt"
	"math/bits"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A WhatIf is a program that differs from the recorded one. All its changes count together.
type WhatIf struct {
	// Without selects the call sites that allocate nothing; nil for none.
	Without func(*event.Stack) bool
	// Early are the call sites whose buffers are freed earlier than recorded.
	Early []Early
	// Sizes are arguments of ttnn.open_device: L1SmallSize, TraceRegionSize, WorkerL1Size.
	Sizes map[string]uint64
	// PID is the only process whose device has these sizes; 0: all have them.
	PID int

	// LeftOut is the number of allocations that Without selected.
	LeftOut uint64
	// Failed is the number of allocations and programs that succeeded as recorded, but not with the changes, and
	// FirstFailed the call stack of the first one.
	Failed      uint64
	FirstFailed *event.Stack
	// Most is what is allocated at most of each bank, in the allocator with the most.
	Most [event.BankedRegions]uint64

	selected map[*event.Stack]bool
}

// An Early frees the buffers of the selected call sites right after the nth allocation, counted from 1.
// Those allocated later are freed as recorded.
type Early struct {
	Of    func(*event.Stack) bool
	After uint64
}

// The arguments of ttnn.open_device that set the sizes of regions.
const (
	L1SmallSize     = "l1_small_size"
	TraceRegionSize = "trace_region_size"
	WorkerL1Size    = "worker_l1_size"
)

// alloc makes an allocation with the changes, and returns its block; nil if there is none. recorded is the region as
// recorded.
func (w *WhatIf) alloc(c *changed, recorded *space, e *event.Event, class Class) *block {
	if w.Without != nil && e.Stack != nil {
		if w.selected == nil {
			w.selected = make(map[*event.Stack]bool)
		}
		selected, known := w.selected[e.Stack]
		if !known {
			selected = w.Without(e.Stack)
			w.selected[e.Stack] = selected
		}
		if selected {
			w.LeftOut++
			return nil
		}
	}
	s := &c.spaces[e.Region]
	address, fits := e.Address, true
	if class <= OtherEnd {
		address, fits = s.fit(e.BytesPerBank, FromTop(e.Region) == (class == Predicted))
	} else if s.in(e.Address, e.Address+e.BytesPerBank) != nil || s.base != recorded.base || s.end != recorded.end {
		c.doubt = "an address that was not predicted would be another one"
		return nil
	}
	if !fits {
		w.fails(e.Stack)
		return nil
	}
	b := newBlock(address, e.BytesPerBank, e.Stack)
	s.add(b)
	w.Most[e.Region] = max(w.Most[e.Region], s.bytes)
	return b
}

func (w *WhatIf) fails(at *event.Stack) {
	if w.Failed++; w.Failed == 1 {
		w.FirstFailed = at
	}
}

// freeEarly frees what is to be freed after the latest allocation. i is the number of the change.
func (w *WhatIf) freeEarly(r *Replay, i int) {
	for _, early := range w.Early {
		if early.After != r.allocations {
			continue
		}
		for _, p := range r.processes {
			for _, b := range p.live {
				if b.changed != nil && b.changed[i] != nil && early.Of(b.changed[i].of) {
					b.in.changed[i].spaces[b.region].remove(b.changed[i])
					b.changed[i] = nil
				}
			}
		}
	}
}

// resizes reports whether the device of a process has other sizes.
func (w *WhatIf) resizes(pid int) bool { return len(w.Sizes) > 0 && (w.PID == 0 || w.PID == pid) }

// tracePages is what the trace region of each bank is a multiple of: 1 MiB over 12 banks is 90112 bytes each.
const tracePages = 4096

// sizes returns the regions of a device that is opened with other sizes. L1_SMALL is the top of L1, which is followed
// by nothing, and TRACE the top of DRAM. doubt says why they are not known.
func (w *WhatIf) sizes(pid int, of memory.Capacities) (with memory.Capacities, doubt string) {
	l1, small, dram, trace := &of[event.L1], &of[event.L1Small], &of[event.DRAM], &of[event.Trace]
	if !w.resizes(pid) {
		return of, ""
	}
	if l1.Base == 0 || small.Base == 0 || dram.Base == 0 || trace.Base == 0 {
		return of, unknownSizes
	}
	alignment := uint64(1) << min(bits.TrailingZeros64(l1.Base), 6) // the library's: 32 or 64
	end := small.Base + small.BytesPerBank
	if size, set := w.Sizes[WorkerL1Size]; set {
		if most := end - l1.Base; size > most {
			doubt = fmt.Sprintf("whether L1 has more than %d B for workers is not known", most)
		}
		l1.Base = roundUp(between(size, end), alignment)
	}
	if size, set := w.Sizes[L1SmallSize]; set {
		small.BytesPerBank = min(roundUp(size, alignment), end)
		small.Base = end - small.BytesPerBank
	}
	l1.BytesPerBank = between(l1.Base, small.Base)
	if size, set := w.Sizes[TraceRegionSize]; set {
		end, banks := trace.Base+trace.BytesPerBank, uint64(max(trace.Banks, 1))
		trace.BytesPerBank = min(roundUp((size+banks-1)/banks, tracePages), end)
		trace.Base = end - trace.BytesPerBank
		dram.BytesPerBank = between(dram.Base, trace.Base)
	}
	if l1.BytesPerBank == 0 || dram.BytesPerBank == 0 {
		doubt = "the device does not open with that size"
	}
	return of, doubt
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
