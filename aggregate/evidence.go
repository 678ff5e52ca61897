package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// maxBlames is the number of call stacks and of circular buffers that a failure has at
// most.
const maxBlames = 16

// evidence returns the state of the region when an allocation failed; nil if the reason for
// the failure is neither memory nor a clash.
func (p *process) evidence(e *event.Event) *memory.Evidence {
	clash := e.Reason == event.ReasonStaticClash
	if !clash && (e.Reason != event.ReasonOutOfMemory || int(e.Region) >= event.BankedRegions) {
		return nil
	}
	ev := &memory.Evidence{Region: e.Region}
	if clash {
		ev.Region = event.L1
	}
	address, a := p.allocatorOf(e, ev.Region)
	if a != nil {
		ev.Capacity = a.capacities[ev.Region]
	}
	var statics []memory.Static
	if clash {
		statics = p.statics(e)
	}
	var buffers []*buffer
	for b := range p.buffers.All() {
		// Circular buffers must not overlap the buffers of any allocator of the device.
		// An allocation only depends on its own allocator.
		if b.region == ev.Region && (b.allocator == address || clash && slices.Equal(b.set.ids, e.Devices)) && (!clash || b.meets(statics)) {
			buffers = append(buffers, b)
		}
	}
	slices.SortFunc(buffers, func(a, b *buffer) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.id, b.id))
	})
	if len(buffers) > 0 {
		ev.Lowest = buffers[0].address
	}
	for _, b := range buffers {
		ev.PerCore = ev.PerCore || b.perCore
	}
	if e.PerCore || !clash && slices.ContainsFunc(buffers, func(b *buffer) bool { return b.perCore && b.address == 0 }) {
		ev.Capacity.Base = 0 // what is free on the core that mattered is not known
	}
	measure(ev, buffers)
	switch {
	case clash:
		addClash(ev, statics)
	case !ev.PerCore: // else what is at an address need not be in the same bank
		findPlace(ev, buffers, e.BytesPerBank)
	}
	ev.Live, ev.Holders = blame(buffers)
	largestFirst(ev.Holders)
	i, _ := slices.BinarySearchFunc(buffers, ev.From, func(b *buffer, from uint64) int {
		return cmp.Compare(b.address+b.perBank, from+1)
	})
	j, _ := slices.BinarySearchFunc(buffers, ev.To, func(b *buffer, to uint64) int { return cmp.Compare(b.address, to) })
	ev.Blocking, ev.Blockers = blame(buffers[i:max(i, j)])
	if !clash {
		largestFirst(ev.Blockers)
	}
	ev.Holders, ev.Blockers = first(ev.Holders), first(ev.Blockers)
	return ev
}

func first(list []memory.Blame) []memory.Blame { return slices.Clone(list[:min(len(list), maxBlames)]) }

// allocatorOf returns the allocator of an event and its address in the process. If the event
// does not name it, it is the largest one of the same chips.
func (p *process) allocatorOf(e *event.Event, region event.Region) (address uint64, a *allocator) {
	if a := p.allocators[e.Allocator]; a != nil {
		return e.Allocator, a
	}
	for _, key := range sortedKeys(p.allocators) {
		one := p.allocators[key]
		if slices.Equal(one.set.ids, e.Devices) &&
			(a == nil || compareCapacities(one.capacities[region], a.capacities[region]) > 0) {
			address, a = key, one
		}
	}
	return address, a
}

// measure computes what is free. The buffers must be in order of address.
func measure(ev *memory.Evidence, buffers []*buffer) {
	if ev.Capacity.Base == 0 {
		return
	}
	blocks := make([]addresses.Block, len(buffers))
	for i, b := range buffers {
		blocks[i] = b.block()
	}
	ev.FreeSpace = addresses.Free(blocks, ev.Capacity.Base, ev.Capacity.Base+ev.Capacity.BytesPerBank)
}

// findPlace finds where the fewest bytes have to be freed for a block of so many bytes.
func findPlace(ev *memory.Evidence, buffers []*buffer, bytes uint64) {
	c := ev.Capacity
	if c.Base == 0 || bytes <= ev.LargestFreeBytesPerBank {
		return
	}
	blocks := make([]addresses.Owned, len(buffers))
	for i, b := range buffers {
		blocks[i] = addresses.Owned{Block: b.block(), ID: b.id}
	}
	place := addresses.FindPlace(blocks, c.Base, c.Base+c.BytesPerBank, bytes)
	ev.From, ev.To = place.Start, place.End
}

// addClash adds the circular buffers of a program that reach above the lowest buffer.
func addClash(ev *memory.Evidence, statics []memory.Static) {
	slices.SortStableFunc(statics, func(a, b memory.Static) int { return cmp.Compare(b.End(), a.End()) })
	for i := range statics {
		s := &statics[i]
		if i == 0 {
			ev.From, ev.To = ev.Capacity.Base, s.End()
		}
		if s.End() > ev.Lowest && len(ev.Statics) < maxBlames {
			ev.Statics = append(ev.Statics, *s)
		}
	}
}

// statics returns the circular buffers of the event's program, of the kind that did not
// fit. It returns those of the first chip, because all chips have the same.
func (p *process) statics(e *event.Event) (list []memory.Static) {
	if len(e.Devices) == 0 || p.chips[e.Devices[0]] == nil {
		return nil
	}
	g := p.chips[e.Devices[0]].programs[e.ProgramID]
	if g == nil {
		return nil
	}
	for _, entry := range g.static {
		if !entry.global && (e.StaticKind == event.NotStatic || kindOfFree(entry.kind) == e.StaticKind) {
			list = append(list, entry.view(p.pid, e.Devices[0], e.ProgramID))
		}
	}
	return list
}

// blame adds up buffers, in all and by call stack. The buffers must be in order of address;
// the call stacks are in the order of their lowest buffers.
func blame(buffers []*buffer) (all memory.Blame, by []memory.Blame) {
	index := make(map[uint64]int)
	var load cores.Load
	var loads []cores.Load // of each call stack
	for _, b := range buffers {
		key := memory.StackID(b.stack)
		i, ok := index[key]
		if !ok {
			i = len(by)
			index[key] = i
			by = append(by, memory.Blame{Address: b.address, Stack: b.stack, BeforeAttach: b.before})
			loads = append(loads, cores.Load{})
		}
		if all.Count == 0 {
			all.Address = b.address
		}
		addTo(&all, b)
		addTo(&by[i], b)
		if b.cores != nil {
			load.Add(b.cores, b.perBank)
			loads[i].Add(b.cores, b.perBank)
		}
	}
	all.BytesPerBank += load.Max()
	for i := range by {
		by[i].BytesPerBank += loads[i].Max()
	}
	return all, by
}

func addTo(l *memory.Blame, b *buffer) {
	if !b.perCore {
		l.BytesPerBank += b.perBank
	}
	l.Count++
	l.End = max(l.End, b.address+b.perBank)
}

// largestFirst sorts by size. The sort is stable: of equal sizes the lowest address is
// first.
func largestFirst(list []memory.Blame) {
	slices.SortStableFunc(list, func(a, b memory.Blame) int { return cmp.Compare(b.BytesPerBank, a.BytesPerBank) })
}
