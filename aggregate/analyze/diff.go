package analyze

import (
	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Parts are the call sites of one moment for a comparison. The zero value is empty.
type Parts struct {
	index map[memory.SiteKey]int
	List  []memory.SiteAmount
}

// AddLive adds the live allocations of a State in the selected regions of chips. Circular
// buffers inside an L1 buffer are part of that buffer.
func (p *Parts) AddLive(s *aggregate.State, selected func(device int, region event.Region) bool) {
	for _, h := range s.CallSites() {
		if h.Count == 0 {
			continue
		}
		part := h.SiteAmount
		if len(h.Devices) == 0 {
			if selected(memory.NoDevice, h.Region) {
				p.add(part)
			}
			continue
		}
		var devices []int
		for _, id := range h.Devices {
			if selected(id, h.Region) {
				devices = append(devices, id)
			}
		}
		switch {
		case len(devices) == 0:
		case h.Region == event.CB: // those of each chip count
			for i := range devices {
				part.Devices = devices[i : i+1]
				p.add(part)
			}
		default:
			part.Devices = devices
			p.add(part)
		}
	}
}

// AddUnfreed adds the buffer of a Free if the program did not free it itself: it was freed
// with its device or its process. The event must have the stack of the allocation, as
// implied events do.
func (p *Parts) AddUnfreed(e *event.Event) {
	if e.Kind != event.Free || e.Reason != event.ReasonDeviceClose && e.Reason != event.ReasonProcessExit {
		return
	}
	p.add(memory.SiteAmount{
		Site: memory.Site{
			PID: e.PID, Stack: e.Stack, Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach, Devices: e.Devices,
		},
		Amount: memory.Amount{Count: 1, Bytes: e.BytesPerBank * uint64(e.Banks)},
	})
}

func (p *Parts) add(one memory.SiteAmount) {
	key := one.Key()
	if i, ok := p.index[key]; ok {
		p.List[i].Add(one.Amount)
		return
	}
	if p.index == nil {
		p.index = make(map[memory.SiteKey]int)
	}
	p.index[key] = len(p.List)
	p.List = append(p.List, one)
}
