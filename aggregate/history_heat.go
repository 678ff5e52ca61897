package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// Heat counts how often each place of the banks was allocated. It takes a bounded
// amount of memory: where there are too many places, it counts coarser ones. Its zero
// value has counted nothing. It is not safe for use by several goroutines at once.
type Heat struct {
	places map[heatKey]*places
	// last is the place of the latest event, as most come in runs.
	last        *places
	lastDevices []int
	lastRegion  event.Region
}

// maxBorders is how many addresses a place begins or ends at are kept of a region.
const maxBorders = 1 << 18

type heatKey struct {
	devices string
	region  event.Region
}

// places are how often the places of one region were allocated.
type places struct {
	devices []int
	// change is by how much an address was allocated more often than the one before,
	// by the address without its last shift bits.
	change map[uint64]int64
	shift  uint
}

// A HeatStep is how often the addresses from its own on were allocated, up to that of
// the next step.
type HeatStep struct {
	Address uint64 `json:"address"`
	Count   uint64 `json:"count"`
}

// Add counts an Alloc, and no other event.
func (h *Heat) Add(e *event.Event) {
	if e.Kind != event.Alloc || e.BytesPerBank == 0 || len(e.Devices) == 0 {
		return
	}
	if h.last == nil || h.lastRegion != e.Region || !slices.Equal(h.lastDevices, e.Devices) {
		key := heatKey{deviceKey(e.Devices), e.Region}
		if h.places == nil {
			h.places = make(map[heatKey]*places)
		}
		if h.last = h.places[key]; h.last == nil {
			h.last = &places{devices: slices.Clone(e.Devices), change: make(map[uint64]int64)}
			h.places[key] = h.last
		}
		h.lastDevices, h.lastRegion = h.last.devices, e.Region
	}
	h.last.add(e.Address, e.Address+e.BytesPerBank)
}

func (p *places) add(start, end uint64) {
	round := uint64(1)<<p.shift - 1
	p.step(start>>p.shift, 1)
	p.step((end+round)>>p.shift, -1)
	if len(p.change) <= maxBorders {
		return
	}
	coarse := &places{devices: p.devices, change: make(map[uint64]int64), shift: p.shift + 1}
	for at, by := range p.change {
		if by < 0 {
			at++ // a place that ends within a coarser one has all of it
		}
		coarse.step(at>>1, by)
	}
	*p = *coarse
}

func (p *places) step(at uint64, by int64) {
	if p.change[at] += by; p.change[at] == 0 {
		delete(p.change, at)
	}
}

// Of is how often the places of a region of a chip were allocated, in order of their
// addresses. Before the first step is nothing, and the last has a Count of 0.
func (h *Heat) Of(device int, region event.Region) []HeatStep {
	change := make(map[uint64]int64)
	for key, p := range h.places {
		if key.region != region || !slices.Contains(p.devices, device) {
			continue
		}
		for at, by := range p.change {
			change[at<<p.shift] += by
		}
	}
	var steps []HeatStep
	var now int64
	for _, at := range sortedKeys(change) {
		if change[at] == 0 {
			continue
		}
		now += change[at]
		steps = append(steps, HeatStep{at, uint64(max(0, now))})
	}
	return steps
}
