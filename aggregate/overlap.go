package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/internal/overlap"
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// An allocator never assigns an address twice. Two allocators of a chip may: those of a mesh and of
// its submesh, or of two processes. Memory that they both assigned is in use once.

// covers are the addresses of the buffers on a chip, of all processes or of one. They are followed
// from the moment at which a second allocator assigns some until no buffer is left.
type covers struct {
	// first is the allocator of all buffers, unless there are several.
	first   *arena
	several bool
	regions [event.BankedRegions]overlap.Region
}

const (
	// maxCoveredChips is the maximum number of chips of a buffer whose addresses are followed: no
	// host has as many, but an event may claim them.
	maxCoveredChips = 64
	// maxOverlaps is how many overlaps of buffers of a user are listed.
	maxOverlaps = 100
)

// covered reports whether the addresses of a buffer are followed.
func (b *buffer) covered() bool {
	return b.Address > 0 && b.End() > b.Address && !b.PerCore && len(b.set.chips) <= maxCoveredChips && !b.set.process.uncovered
}

// cover counts the addresses of a new buffer, and returns the chips on which others have them. Call
// it after the buffer was added to the totals.
func (p *process) cover(b *buffer, restoring bool) (shared []*chip) {
	s := p.state
	if !b.covered() {
		return nil
	}
	for _, c := range b.set.chips {
		c.covers.insert(b, &c.used, s.buffersOn(c.chip, p), restoring)
		if c.chip.covers.insert(b, &c.chip.used, s.buffersOn(c.chip, nil), restoring) > 0 {
			shared = append(shared, c.chip)
		}
		c.countOnce()
	}
	if !p.kept.ofCovers.Hold(s.rooms.covers, p.name.user(), p.name.covers) {
		p.beyond()
		p.uncoverAll(nil)
		p.name.uncovered = true
		p.kept.ofCovers.Release(s.rooms.covers)
	}
	return shared
}

// uncover undoes cover. Call it before or after the buffer was removed from the totals.
func (b *buffer) uncover() {
	if !b.covered() {
		return
	}
	for _, c := range b.set.chips {
		for _, v := range []*covers{&c.covers, &c.chip.covers} {
			if v.several {
				v.change(b, false)
			}
		}
		c.countOnce()
	}
}

// uncoverAll is uncover of all buffers of a process, or only those of one arena.
func (p *process) uncoverAll(only *arena) {
	several := false
	for _, c := range p.chips {
		if c.chip.covers.several {
			c.chip.change()
			several = true
		}
	}
	if several {
		for b := range p.buffers.All() {
			if only == nil || b.arena == only {
				b.uncover()
			}
		}
	}
}

// insert adds a buffer that is in the totals of a chip already, and returns how many bytes of each
// bank were assigned before. buffers are all those of the chip. While a checkpoint is read, several is
// known already.
func (v *covers) insert(b *buffer, u *peak.Use, buffers iter.Seq[*buffer], restoring bool) (twice uint64) {
	if !v.several && v.first == b.arena {
		return 0
	}
	count := uint64(0)
	for i := range u.Regions {
		count += u.Regions[i].Count
	}
	switch {
	case v.several && restoring:
	case count <= 1 || v.first == nil && !v.several:
		*v = covers{first: b.arena}
		return 0
	case !v.several:
		v.several = true
		for other := range buffers {
			if other != b && other.covered() {
				v.change(other, true)
			}
		}
	}
	return v.change(b, true)
}

// change adds or removes the addresses of a buffer. It returns how many bytes of each bank of an added one
// other buffers have, too.
func (v *covers) change(b *buffer, add bool) (twice uint64) {
	r, block := &v.regions[b.Region], b.block()
	if !add {
		b.set.process.covers--
		r.Remove(block.Start, block.End)
		return 0
	}
	b.set.process.covers++
	return r.Insert(block.Start, block.End, b.Banks)
}

// countOnce takes what several allocators assigned from the totals of the process and of the chip.
func (c *processChip) countOnce() {
	if c.covers.several {
		c.covers.countOnce(&c.used, c.capacities())
	}
	if !c.chip.covers.several {
		return
	}
	before := c.chip.covers.regions
	c.chip.covers.countOnce(&c.chip.used, &c.chip.capacities)
	for region := range c.chip.pools {
		was, is := before[region].Taken, c.chip.covers.regions[region].Taken
		c.chip.pools[region].Bytes += was.Counts(event.Region(region)) - is.Counts(event.Region(region))
	}
}

// countOnce takes what several allocators assigned from totals.
func (v *covers) countOnce(u *peak.Use, capacities *memory.Capacities) {
	for region := range v.regions {
		v.regions[region].CountOnce(&u.Regions[region], capacities[region].Banks)
	}
}

// buffersOn returns the live buffers on a chip, of one process, or of all if only is nil.
func (s *State) buffersOn(on *chip, only *process) iter.Seq[*buffer] {
	return func(yield func(*buffer) bool) {
		for _, p := range s.processes {
			if c := p.chips[on.id]; c != nil && (only == nil || only == p) {
				for b := range p.buffers.All() {
					if slices.Contains(b.set.chips, c) && !yield(b) {
						return
					}
				}
			}
		}
	}
}

// noteOverlap lists the overlaps of a new buffer on chips. Finding the other buffers is a pass over
// all: it is done for the first such buffer of a call site, the second, the fourth and so on, or for the
// next one for which the budget has room.
func (p *process) noteOverlap(b *buffer, on []*chip) {
	s := p.state
	times := s.overlaps.Count + 1
	defer func() { s.overlaps.Count = times }()
	if bits.OnesCount32(b.overlapped+1) == 1 && !s.maySearchOverlaps(p.name.user()) {
		return
	}
	if b.overlapped++; bits.OnesCount32(b.overlapped) != 1 {
		return
	}
	list := s.overlaps.List()
	room := maxOverlaps
	for i := range list {
		if list[i].Later.UID == b.UID() {
			room--
		}
	}
	if room <= 0 {
		return
	}
	known := make(map[memory.OverlapSites]bool, len(list))
	for i := range list {
		known[list[i].Sites()] = true
	}
	first := make(map[*callSite]*buffer)
	for _, p := range s.processes {
		for other := range p.buffers.All() {
			if other.arena == b.arena || other.Region != b.Region || !other.covered() || len(other.commonChips(on)) == 0 ||
				other.Address >= b.End() || b.Address >= other.End() {
				continue
			}
			if known := first[other.callSite]; known == nil || other.BufferID < known.BufferID {
				first[other.callSite] = other
			}
		}
	}
	for _, other := range slices.SortedFunc(maps.Values(first), func(a, b *buffer) int {
		return cmp.Or(cmp.Compare(a.set.process.pid, b.set.process.pid), cmp.Compare(a.BufferID, b.BufferID))
	}) {
		start, end := max(b.Address, other.Address), min(b.End(), other.End())
		one := memory.Overlap{
			TimeNs: b.SinceNs, Devices: other.commonChips(on), Region: b.Region.String(), Address: start, BytesPerBank: end - start,
			Earlier: other.inOverlap(), Later: b.inOverlap(), Number: s.applied,
		}
		if room > 0 && !known[one.Sites()] {
			s.overlaps.Add(one)
			room--
		}
	}
}

// maySearchOverlaps reports whether the budget has room for the buffers of all processes, and for the overlaps that
// are listed.
func (s *State) maySearchOverlaps(user int) bool {
	b := &s.compared
	return b.take(s, user, len(s.processes)) && b.take(s, user, s.BufferCount()+newest.Most)
}

// commonChips returns which of the chips a buffer is on.
func (b *buffer) commonChips(on []*chip) (ids []int) {
	for _, c := range on {
		if slices.Contains(b.set.ids, c.id) {
			ids = append(ids, c.id)
		}
	}
	return ids
}

func (b *buffer) inOverlap() memory.OverlapBuffer {
	return memory.OverlapBuffer{
		PID: b.set.process.pid, UID: b.UID(), Sharer: b.set.process.sharer(), BufferID: b.BufferID, Address: b.Address, SizeBytes: b.SizeBytes, BytesPerBank: b.BytesPerBank,
		BeforeAttach: b.BeforeAttach, Stack: b.Stack,
	}
}
