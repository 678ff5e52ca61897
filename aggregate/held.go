package aggregate

import (
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/newest"
	"ttmem/tracer/codec"
)

// mostHeld is how many buffers that ended a State keeps with their owners: at least so many of the
// newest, and up to twice as many. If there are more, it keeps as many of each user.
const mostHeld = 1 << 14

// A heldBuffer is a buffer that ended, and whose owner was known.
type heldBuffer struct {
	*callSite
	memory.Owner
	id, since, end uint64
	// latest is the latest allocation of its process when it ended.
	latest  uint64
	perBank uint64
	banks   uint16 // in which perBank was reserved
	// unfreed is true if it ended with its device or process.
	unfreed bool
}

// Origin returns the user of the buffer, and when it ended.
func (h heldBuffer) Origin() (sharer int, number uint64) { return h.set.process.sharer(), h.end }

// keepOwner keeps the owner of a buffer that ends, if it is known; ended is true if its device or
// process ends.
func (s *State) keepOwner(p *process, b *buffer, now uint64, ended bool) {
	owner, known := p.owners[b.BufferID]
	if !known {
		return
	}
	delete(p.owners, b.BufferID)
	if len(s.held) == 2*mostHeld {
		s.held, _ = newest.Shared(s.held, mostHeld)
	}
	s.held = append(s.held, heldBuffer{
		callSite: b.callSite, Owner: owner, id: b.BufferID, since: b.SinceNs, end: now, latest: p.name.run.Latest(),
		perBank: b.BytesPerBank, banks: b.Banks, unfreed: ended,
	})
}

// keepOwners keeps the owners of all buffers of an arena, which end; of all buffers of the process if
// only is nil. The call stacks of these and of those that ended before are resolved: an unresolved
// stack keeps all data about the process's code in memory.
func (s *State) keepOwners(p *process, only *arena, now uint64) {
	for _, id := range slices.Sorted(maps.Keys(p.owners)) {
		if b := p.buffers.Get(id); b != nil && (only == nil || b.arena == only) {
			s.keepOwner(p, b, now, true)
		}
	}
	for i := range s.held {
		if s.held[i].set.process == p.name {
			s.held[i].Stack.Calls()
		}
	}
}

// EndedOwned returns the buffers that ended and whose owner is known, in the order of their ends. It
// has only the newest ones.
func (s *State) EndedOwned() (list []memory.EndedBuffer) {
	for i := range s.held {
		h := &s.held[i]
		list = append(list, memory.EndedBuffer{
			Buffer: memory.Buffer{
				Site: &h.Site, Allocator: h.allocator, Owner: h.Owner,
				Allocation: &memory.Allocation{BufferID: h.id, BytesPerBank: h.perBank, Banks: h.banks, SinceNs: h.since},
			},
			EndNs: h.end, LatestID: h.latest, Unfreed: h.unfreed,
		})
	}
	return list
}

// heldBuffers writes or reads the buffers that ended, with their owners.
func (c *stateCodec) heldBuffers(s *State) {
	codec.List(c.Codec, &s.held, func(h *heldBuffer) {
		c.pastSite(&h.callSite)
		c.Text(&h.Path)
		c.Text(&h.Tensor)
		c.Uints(&h.id, &h.since, &h.end, &h.latest, &h.perBank)
		codec.Number(c.Codec, &h.banks)
		c.Bool(&h.unfreed)
	})
}
