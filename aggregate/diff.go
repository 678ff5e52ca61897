package aggregate

import (
	"encoding/binary"
	"slices"

	"ttmem/tracer/event"
)

// A Part is what one call stack of a process has of a region on the same chips.
type Part struct {
	PID    int
	Stack  *event.Stack // nil where that is not known
	Region event.Region
	// Layout is that of buffers, and Static what kind of static buffers of programs
	// they are; NotStatic for buffers.
	Layout       event.Layout
	Static       event.StaticKind
	BeforeAttach bool
	// Devices are the chips that each is on. They must not be modified.
	Devices []int
	// Count is how many there are, and Bytes what they take together of all banks, or
	// all cores, of each of the chips.
	Count, Bytes uint64
}

// A partKey tells Parts apart. Stacks that a file of events has again and again have
// equal IDs, and nothing else is equal.
type partKey struct {
	pid     int
	stack   uint64
	devices string
	region  event.Region
	layout  event.Layout
	static  event.StaticKind
	before  bool
}

// Parts add up what is allocated. Their zero value has nothing.
type Parts struct {
	index map[partKey]int
	List  []Part
}

// AddHeld adds what is allocated in a state, of the regions of chips that are wanted:
// buffers, and circular buffers that do not lie in one.
func (p *Parts) AddHeld(s *State, wanted func(device int, region event.Region) bool) {
	for _, process := range s.byPID() {
		for _, h := range process.list(func(*buffer) bool { return true }) {
			devices, unwanted := h.Devices, func(id int) bool { return !wanted(id, h.Region) }
			switch {
			case len(devices) == 0 && unwanted(NoDevice):
				continue
			case slices.ContainsFunc(devices, unwanted):
				if devices = slices.DeleteFunc(slices.Clone(devices), unwanted); len(devices) == 0 {
					continue
				}
			}
			p.add(Part{
				PID: h.PID, Stack: h.Stack, Region: h.Region, Layout: h.Layout, BeforeAttach: h.BeforeAttach,
				Devices: devices, Count: 1, Bytes: h.AllocatedBytes(),
			})
		}
	}
	for _, id := range sortedKeys(s.chips) {
		if !wanted(id, event.CB) {
			continue
		}
		for _, one := range s.Statics(id) {
			if one.Global {
				continue
			}
			cores := 0
			for _, c := range one.Cores {
				cores += c.Cores()
			}
			p.add(Part{
				PID: one.PID, Stack: one.Stack, Region: event.CB, Static: one.Kind, BeforeAttach: one.BeforeAttach,
				Devices: []int{id}, Count: 1, Bytes: one.BytesPerCore * uint64(cores),
			})
		}
	}
}

// AddLeft adds what a Free tells of, if nobody freed it: it went with its device or its
// process. The event is to be complete, with the stack of the allocation, as events are
// that others imply.
func (p *Parts) AddLeft(e *event.Event) {
	if e.Kind != event.Free || !isEnd(e.Reason) {
		return
	}
	p.add(Part{
		PID: e.PID, Stack: e.Stack, Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach,
		Devices: e.Devices, Count: 1, Bytes: e.BytesPerBank * uint64(e.Banks),
	})
}

func (p *Parts) add(one Part) {
	key := partKey{
		pid: one.PID, stack: stackID(one.Stack), devices: deviceKey(one.Devices),
		region: one.Region, layout: one.Layout, static: one.Static, before: one.BeforeAttach,
	}
	if i, ok := p.index[key]; ok {
		p.List[i].Count += one.Count
		p.List[i].Bytes += one.Bytes
		return
	}
	if p.index == nil {
		p.index = make(map[partKey]int)
	}
	p.index[key] = len(p.List)
	p.List = append(p.List, one)
}

// deviceKey is the same for the same chips.
func deviceKey(ids []int) string {
	key := make([]byte, 0, 64)
	for _, id := range ids {
		key = binary.AppendUvarint(key, uint64(id))
	}
	return string(key)
}
