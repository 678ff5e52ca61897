package analyze

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Parts are the call sites of one moment for a comparison, apart by who holds their live buffers. The
// zero value is empty.
type Parts struct {
	index map[partKey]int
	List  []Part
}

// A Part is the buffers of a call site with the same owner. The owner's path has no indices; it is ""
// for buffers whose owner is not known.
type Part struct {
	memory.SiteAmount
	Owner string
	// Class is what the owner tells of the class.
	Class *name.Class
}

type partKey struct {
	memory.SiteKey
	owner string
	class *name.Class
}

// AddLive adds the live allocations of a State in the selected regions of chips. Circular
// buffers inside an L1 buffer are part of that buffer.
func (p *Parts) AddLive(s *aggregate.State, selected func(device int, region event.Region) bool) {
	holders := HoldersOf(s)
	for _, h := range s.CallSites() {
		if h.Count == 0 {
			continue
		}
		part := h.SiteAmount
		if len(h.Devices) == 0 {
			if selected(memory.NoDevice, h.Region) {
				p.add(part, "", nil)
			}
			continue
		}
		held := holders.Split(&h.Site, h.Amount, Now, false)
		var devices []int
		for _, id := range h.Devices {
			if selected(id, h.Region) {
				devices = append(devices, id)
			}
		}
		switch {
		case len(devices) == 0:
		case h.Region == event.CB: // each chip has its own
			for i := range devices {
				part.Devices = devices[i : i+1]
				p.add(part, "", nil)
			}
		default:
			part.Devices = devices
			p.addHeld(part, held)
		}
	}
}

// AddSurvivors adds the buffers that were allocated in born, after State.FollowFrom, and survived until now.
func (p *Parts) AddSurvivors(s *aggregate.State, born memory.Intervals) {
	list, _ := s.Between(nil, born)
	for i := range list {
		if one := (memory.SiteAmount{Site: list[i].Site, Amount: list[i].Amount}); one.Count > 0 {
			one.Bytes /= uint64(max(1, len(one.Devices)))
			p.add(one, "", nil)
		}
	}
}

// AddUnfreed adds the allocations that the program did not free: the live ones of a State, and the
// buffers that ended with their device or process. others is the sum of the buffers of call sites
// that are not listed, because their process had too many.
func (p *Parts) AddUnfreed(s *aggregate.State) (others memory.Amount) {
	p.AddLive(s, func(int, event.Region) bool { return true })
	all, others := s.EndedSurvivors()
	holders := unfreedHoldersOf(s)
	index := make(map[memory.SiteKey]int) // a call site may have had several allocators
	var list []memory.SiteAmount
	for i := range all {
		key := all[i].Key()
		at, ok := index[key]
		switch {
		case all[i].Count == 0:
		case ok:
			list[at].Add(all[i].Amount)
		default:
			index[key] = len(list)
			list = append(list, all[i])
		}
	}
	for _, one := range list {
		p.addHeld(one, holders.Split(&one.Site, one.Amount, Now, false))
	}
	return others
}

// AddPeaks adds the allocations that were live at the peak of each region of each chip.
func (p *Parts) AddPeaks(s *aggregate.State) {
	times := make(map[uint64]uint64) // of the events at which peaks were
	for _, peak := range s.Index().Peaks {
		times[peak.Number] = peak.TimeNs
	}
	holders := PastHoldersOf(s)
	for _, h := range s.CallSites() {
		var list []memory.SiteAmount  // by peak
		var when []uint64             // these were
		index := make(map[uint64]int) // several chips may have their peak at the same moment
		for _, at := range h.AtPeak {
			if at.Device == memory.NoDevice || at.Count == 0 {
				continue
			}
			i, ok := index[at.Number]
			if !ok || h.Region == event.CB { // each chip has its own
				i, index[at.Number] = len(list), len(list)
				list, when = append(list, memory.SiteAmount{Site: h.Site, Amount: at.Amount}), append(when, times[at.Number])
				list[i].Devices = nil
			}
			list[i].Devices = append(list[i].Devices, at.Device)
		}
		for i, one := range list {
			site := h.Site // on all its chips
			p.addHeld(one, holders.Split(&site, one.Amount, when[i], false))
		}
	}
}

// HasStacks reports whether the call stack of any allocation is known.
func (p *Parts) HasStacks() bool {
	return slices.ContainsFunc(p.List, func(one Part) bool { return one.Stack != nil })
}

// addHeld adds buffers of a call site by who holds them; held is nil if that is not known of any.
func (p *Parts) addHeld(one memory.SiteAmount, held []Holder) {
	if held == nil {
		p.add(one, "", nil)
	}
	for i := range held {
		one.Amount = held[i].Amount
		p.add(one, name.FoldOwner(held[i].Path), held[i].Class)
	}
}

func (p *Parts) add(one memory.SiteAmount, owner string, class *name.Class) {
	key := partKey{one.Key(), owner, class}
	if i, ok := p.index[key]; ok {
		p.List[i].Add(one.Amount)
		return
	}
	if p.index == nil {
		p.index = make(map[partKey]int)
	}
	p.index[key] = len(p.List)
	p.List = append(p.List, Part{one, owner, class})
}
