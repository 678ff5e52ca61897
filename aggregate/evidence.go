package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// Evidence is what a region was like when a request for memory failed: as the process
// had it, whose allocator knows of no other.
type Evidence struct {
	// Region is the one that was asked; L1 where a static buffer of a program met a
	// tensor.
	Region event.Region
	// Capacity is what the allocator had to give away; zero where it is not known.
	Capacity event.Capacity
	// FreeSpace is what was free of it; zero where the Capacity or its Base is not
	// known.
	addresses.FreeSpace
	// From and To are the addresses between which Blockers lie: for a request the
	// place that costs least to make free, and for a clash what the static buffers of
	// the program take. Both are 0 where freeing does not help or is not known to.
	From, To uint64
	// Held is all that the region had, and Holders the call stacks that had most of
	// it, largest first.
	Held    Blame
	Holders []Blame
	// Blocking is all that lay between From and To: what would have to go. Blockers
	// are the call stacks that it is from: those that had most of it first; for a
	// clash those that lay lowest first, which is where buffers and programs meet.
	Blocking Blame
	Blockers []Blame
	// Lowest is the address of the lowest buffer; 0 where there was none.
	Lowest uint64
	// Statics are the static buffers of the program that reach above Lowest. The
	// highest comes first.
	Statics []Static
}

// keptBlames is how many call stacks, and how many static buffers, are kept of each
// failure.
const keptBlames = 16

// Blame is buffers that were allocated at one call stack, or all of them together.
type Blame struct {
	// BytesPerBank is what Count of them took of each bank, between the addresses
	// Address and End.
	BytesPerBank, Count uint64
	Address, End        uint64
	// BeforeAttach marks those that were there before the process was attached.
	BeforeAttach bool
	Stack        *event.Stack
}

// A Verdict is why a request for memory failed.
type Verdict uint8

// The verdicts.
const (
	// Unexplained is a failure that is not understood: what is known of the banks is
	// not enough, or does not contradict the request.
	Unexplained Verdict = iota
	// TooLarge is a request for more than a bank has when it is empty.
	TooLarge
	// TooLittle is one for more than was free in all.
	TooLittle
	// Fragmented is one for more than the largest free block, where as much was free
	// in all.
	Fragmented
	// Clash is a program whose static buffers reach into a tensor.
	Clash
)

// Verdict is why it failed.
func (f *Failure) Verdict() Verdict {
	e := f.Evidence
	switch {
	case f.Reason == event.ReasonStaticClash.String():
		return Clash
	case f.Reason != event.ReasonOutOfMemory.String() || e == nil || e.Capacity.Base == 0 || f.BytesPerBank == 0:
		return Unexplained
	case f.BytesPerBank > e.Capacity.BytesPerBank:
		return TooLarge
	case f.BytesPerBank > e.FreeBytesPerBank:
		return TooLittle
	case f.BytesPerBank > e.LargestFreeBytesPerBank:
		return Fragmented
	}
	return Unexplained
}

// evidence looks at what there is when a request fails; nil where that tells nothing.
func (p *process) evidence(e *event.Event) *Evidence {
	clash := e.Reason == event.ReasonStaticClash
	if !clash && (e.Reason != event.ReasonOutOfMemory || int(e.Region) >= event.BankedRegions) {
		return nil
	}
	found := &Evidence{Region: e.Region}
	if clash {
		found.Region = event.L1
	}
	at, a := p.asked(e, found.Region)
	if a != nil {
		found.Capacity = a.capacities[found.Region]
	}
	var buffers []*buffer
	for b := range p.buffers.all() {
		// A program's static buffers have to stay clear of all allocators of its
		// device; a request is one allocator's.
		if b.region == found.Region && (b.allocator == at || clash && slices.Equal(b.set.ids, e.Devices)) {
			buffers = append(buffers, b)
		}
	}
	slices.SortFunc(buffers, func(a, b *buffer) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.id, b.id))
	})
	if len(buffers) > 0 {
		found.Lowest = buffers[0].address
	}
	found.measure(buffers)
	if clash {
		found.clash(p.statics(e))
	} else {
		found.place(buffers, e.BytesPerBank)
	}
	found.Held, found.Holders = blame(buffers)
	largestFirst(found.Holders)
	i, _ := slices.BinarySearchFunc(buffers, found.From, func(b *buffer, from uint64) int {
		return cmp.Compare(b.address+b.perBank, from+1)
	})
	j, _ := slices.BinarySearchFunc(buffers, found.To, func(b *buffer, to uint64) int { return cmp.Compare(b.address, to) })
	found.Blocking, found.Blockers = blame(buffers[i:max(i, j)])
	if !clash {
		largestFirst(found.Blockers)
	}
	found.Holders, found.Blockers = keep(found.Holders), keep(found.Blockers)
	return found
}

func keep(list []Blame) []Blame { return slices.Clone(list[:min(len(list), keptBlames)]) }

// asked is the allocator that was asked. Where the event does not name it, it is one
// of the same chips.
func (p *process) asked(e *event.Event, region event.Region) (address uint64, a *allocator) {
	if a := p.allocators[e.Allocator]; a != nil {
		return e.Allocator, a
	}
	for _, at := range sortedKeys(p.allocators) {
		of := p.allocators[at]
		if slices.Equal(of.set.ids, e.Devices) &&
			(a == nil || compareCapacities(of.capacities[region], a.capacities[region]) > 0) {
			address, a = at, of
		}
	}
	return address, a
}

// measure finds what buffers, which are in order, leave free.
func (found *Evidence) measure(buffers []*buffer) {
	if found.Capacity.Base == 0 {
		return
	}
	blocks := make([]addresses.Block, len(buffers))
	for i, b := range buffers {
		blocks[i] = b.block()
	}
	found.FreeSpace = addresses.Free(blocks, found.Capacity.Base, found.Capacity.Base+found.Capacity.BytesPerBank)
}

// place finds where the fewest bytes would have to be freed for a block of so many; of
// as many, the fewest buffers, and of as many of those the newest, as their ids tell: what
// was allocated first is rather to stay. The place begins where a buffer ends, or where
// the region does: from anywhere else it can be moved down to there and needs no more.
func (found *Evidence) place(buffers []*buffer, bytes uint64) {
	c := found.Capacity
	if c.Base == 0 || bytes == 0 || bytes > c.BytesPerBank || bytes <= found.LargestFreeBytesPerBank {
		return
	}
	best, fewest, newest := ^uint64(0), 0, uint64(0)
	var taken, ids uint64 // by buffers[first:last], which lie from start on, and the sum of their ids
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
			found.From, found.To = start, start+bytes
		}
		return true
	}
	if !try(c.Base, 0) {
		return
	}
	for first, b := range buffers {
		if first >= last {
			last, taken, ids = first+1, b.perBank, b.id // it lay beyond the last place
		}
		taken, ids = taken-b.perBank, ids-b.id
		if !try(b.address+b.perBank, first+1) {
			return
		}
	}
}

// clash keeps what static buffers of a program reach above the lowest buffer.
func (found *Evidence) clash(statics []Static) {
	slices.SortStableFunc(statics, func(a, b Static) int { return cmp.Compare(b.End(), a.End()) })
	for i := range statics {
		s := &statics[i]
		if i == 0 {
			found.From, found.To = found.Capacity.Base, s.End()
		}
		if s.End() > found.Lowest && len(found.Statics) < keptBlames {
			found.Statics = append(found.Statics, *s)
		}
	}
}

// End is the address behind it.
func (s *Static) End() uint64 { return s.Address + s.BytesPerCore }

// statics are the static buffers of the program of the event, of the kind that did not
// fit, on its first chip: they are the same on all.
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
			list = append(list, Static{
				PID: p.pid, Device: e.Devices[0], ProgramID: e.ProgramID,
				Cores:   entry.place.Set.Ranges(),
				Address: entry.place.Start, BytesPerCore: entry.place.BytesPerCore(),
				Kind: entry.kind, SinceNs: entry.from.since,
				BeforeAttach: entry.from.beforeAttach, Stack: entry.from.stack,
			})
		}
	}
	return list
}

// blame adds up buffers, which are in order of their addresses, in all and by call
// stack: those that lie lowest first.
func blame(buffers []*buffer) (all Blame, by []Blame) {
	index := make(map[uint64]int)
	for _, b := range buffers {
		key := stackID(b.stack)
		i, ok := index[key]
		if !ok {
			i = len(by)
			index[key] = i
			by = append(by, Blame{Address: b.address, Stack: b.stack, BeforeAttach: b.before})
		}
		if all.Count == 0 {
			all.Address = b.address
		}
		all.add(b)
		by[i].add(b)
	}
	return all, by
}

func (l *Blame) add(b *buffer) {
	l.BytesPerBank += b.perBank
	l.Count++
	l.End = max(l.End, b.address+b.perBank)
}

// largestFirst is stable: of as much, what lies lowest comes first.
func largestFirst(list []Blame) {
	slices.SortStableFunc(list, func(a, b Blame) int { return cmp.Compare(b.BytesPerBank, a.BytesPerBank) })
}
