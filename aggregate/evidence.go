package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// Evidence is the state of a region when an allocation failed. It has the buffers of the
// process only, because its allocator does not know those of others.
type Evidence struct {
	// Region is the region of the allocation; L1 if circular buffers overlapped a tensor.
	Region event.Region
	// Capacity is that of the allocator; zero if it is not known.
	Capacity event.Capacity
	// FreeSpace is what was free; zero if the Capacity or its Base is not known.
	addresses.FreeSpace
	// PerCore is true if some buffers were on single cores. What was free is then what was
	// free on all of them, and which buffers would have to go is not known.
	PerCore bool
	// From and To are the addresses between which the Blockers are. For an allocation
	// this is the place where the fewest bytes have to be freed; for a clash it is what
	// the program's circular buffers occupy. Both are 0 if freeing does not help, or if
	// that is not known.
	From, To uint64
	// Live is all that was live in the region, and Holders are the call stacks with the
	// most of it, largest first.
	Live    Blame
	Holders []Blame
	// Blocking is all that was live between From and To, and Blockers are its call
	// stacks: largest first, or for a clash lowest address first, because buffers and
	// programs meet there.
	Blocking Blame
	Blockers []Blame
	// Lowest is the address of the lowest buffer; 0 if there was none.
	Lowest uint64
	// Statics are the program's circular buffers that reach above Lowest, highest first.
	Statics []Static
}

// maxBlames is the number of call stacks and of circular buffers that a failure has at
// most.
const maxBlames = 16

// A Blame is the buffers of one call stack, or of all together.
type Blame struct {
	// BytesPerBank is what the Count buffers occupy of each bank, or of the fullest if some
	// are on single cores, between Address and End.
	BytesPerBank, Count uint64
	Address, End        uint64
	// BeforeAttach marks buffers that were allocated before ttmem attached.
	BeforeAttach bool
	Stack        *event.Stack
}

// evidence returns the state of the region when an allocation failed; nil if the reason for
// the failure is neither memory nor a clash.
func (p *process) evidence(e *event.Event) *Evidence {
	clash := e.Reason == event.ReasonStaticClash
	if !clash && (e.Reason != event.ReasonOutOfMemory || int(e.Region) >= event.BankedRegions) {
		return nil
	}
	ev := &Evidence{Region: e.Region}
	if clash {
		ev.Region = event.L1
	}
	address, a := p.allocatorOf(e, ev.Region)
	if a != nil {
		ev.Capacity = a.capacities[ev.Region]
	}
	var statics []Static
	if clash {
		statics = p.statics(e)
	}
	var buffers []*buffer
	for b := range p.buffers.all() {
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
	ev.measure(buffers)
	switch {
	case clash:
		ev.addClash(statics)
	case !ev.PerCore: // else what is at an address need not be in the same bank
		ev.findPlace(buffers, e.BytesPerBank)
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

func first(list []Blame) []Blame { return slices.Clone(list[:min(len(list), maxBlames)]) }

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
func (ev *Evidence) measure(buffers []*buffer) {
	if ev.Capacity.Base == 0 {
		return
	}
	blocks := make([]addresses.Block, len(buffers))
	for i, b := range buffers {
		blocks[i] = b.block()
	}
	ev.FreeSpace = addresses.Free(blocks, ev.Capacity.Base, ev.Capacity.Base+ev.Capacity.BytesPerBank)
}

// findPlace finds where the fewest bytes have to be freed for a block of so many bytes. Of
// equal places it takes the one with the fewest buffers, and then the one with the newest,
// which have the largest ids: the oldest buffers are the least likely to be freed. Only
// places that begin at the end of a buffer or at the start of the region are tried. A place
// anywhere else can move down to one of these without more to free.
func (ev *Evidence) findPlace(buffers []*buffer, bytes uint64) {
	c := ev.Capacity
	if c.Base == 0 || bytes == 0 || bytes > c.BytesPerBank || bytes <= ev.LargestFreeBytesPerBank {
		return
	}
	best, fewest, newest := ^uint64(0), 0, uint64(0)
	var taken, ids uint64 // bytes of buffers[first:last] and the sum of their ids
	last := 0
	try := func(start uint64, first int) bool {
		if start+bytes > c.Base+c.BytesPerBank {
			return false
		}
		for ; last < len(buffers) && buffers[last].address < start+bytes; last++ {
			taken, ids = taken+buffers[last].perBank, ids+buffers[last].id
		}
		count := last - min(first, last)
		if cmp.Or(cmp.Compare(taken, best), cmp.Compare(count, fewest), cmp.Compare(newest, ids)) < 0 {
			best, fewest, newest = taken, count, ids
			ev.From, ev.To = start, start+bytes
		}
		return true
	}
	if !try(c.Base, 0) {
		return
	}
	for first, b := range buffers {
		if first >= last {
			last, taken, ids = first+1, b.perBank, b.id // it was beyond the previous place
		}
		taken, ids = taken-b.perBank, ids-b.id
		if !try(b.address+b.perBank, first+1) {
			return
		}
	}
}

// addClash adds the circular buffers of a program that reach above the lowest buffer.
func (ev *Evidence) addClash(statics []Static) {
	slices.SortStableFunc(statics, func(a, b Static) int { return cmp.Compare(b.End(), a.End()) })
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

// End returns the address after its last byte.
func (s *Static) End() uint64 { return s.Address + s.BytesPerCore }

// statics returns the circular buffers of the event's program, of the kind that did not
// fit. It returns those of the first chip, because all chips have the same.
func (p *process) statics(e *event.Event) (list []Static) {
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
func blame(buffers []*buffer) (all Blame, by []Blame) {
	index := make(map[uint64]int)
	var load cores.Load
	var loads []cores.Load // of each call stack
	for _, b := range buffers {
		key := stackID(b.stack)
		i, ok := index[key]
		if !ok {
			i = len(by)
			index[key] = i
			by = append(by, Blame{Address: b.address, Stack: b.stack, BeforeAttach: b.before})
			loads = append(loads, cores.Load{})
		}
		if all.Count == 0 {
			all.Address = b.address
		}
		all.add(b)
		by[i].add(b)
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

func (l *Blame) add(b *buffer) {
	if !b.perCore {
		l.BytesPerBank += b.perBank
	}
	l.Count++
	l.End = max(l.End, b.address+b.perBank)
}

// largestFirst sorts by size. The sort is stable: of equal sizes the lowest address is
// first.
func largestFirst(list []Blame) {
	slices.SortStableFunc(list, func(a, b Blame) int { return cmp.Compare(b.BytesPerBank, a.BytesPerBank) })
}
