package aggregate

import (
	"maps"
	"slices"

	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// owners are those of the live buffers of a process.
type owners struct {
	// known are by the buffers' ids.
	known map[uint64]memory.Owner
	// searchedNs is when the latest search for owners ended, 0 if there was none, and unsearched why it
	// was incomplete.
	searchedNs uint64
	unsearched string
}

// own takes an Owner: who holds a buffer or, for an event without one, how a search of the process ended.
func (p *process) own(e *event.Event) {
	o := &p.owners
	switch {
	case e.BufferID == event.NoBuffer:
		o.searchedNs, o.unsearched = e.TimeNs, e.Message
	case p.buffers.Get(e.BufferID) == nil: // it was freed meanwhile
	case e.Cause == "":
		delete(o.known, e.BufferID)
	default:
		if o.known == nil {
			o.known = make(map[uint64]memory.Owner)
		}
		o.known[e.BufferID] = memory.Owner{Path: e.Cause, Tensor: e.Message}
		p.ownUnsafe(e.BufferID, o.known[e.BufferID])
	}
}

// ApplyLater applies an Owner from after the state's time: who holds a buffer is a fact about its
// life. An event that a buffer has no owner any more does not matter before it.
func (s *State) ApplyLater(e *event.Event) {
	p := s.known(e.PID)
	if e.Kind == event.Owner && (e.Cause != "" || e.BufferID == event.NoBuffer) && p != nil && p.since == e.Count {
		p.own(e)
	}
}

// Owned returns the live buffers whose owner is known, in order of process and time.
func (s *State) Owned() []memory.Buffer {
	var all []memory.Buffer
	for _, p := range s.byPID() {
		for _, id := range sortedKeys(p.owners.known) { // they go up with time
			if b := p.buffers.Get(id); b != nil { // a checkpoint may have any
				all = append(all, p.viewOf(b))
			}
		}
	}
	return all
}

// search returns how the latest search for owners ended; nil if there was none.
func (o *owners) search(buffers uint64) *memory.OwnerSearch {
	if o.searchedNs == 0 {
		return nil
	}
	return &memory.OwnerSearch{
		TimeNs: o.searchedNs, Incomplete: o.unsearched, Buffers: buffers, Unowned: buffers - min(buffers, uint64(len(o.known))),
	}
}

// code writes or reads the owners.
func (o *owners) code(c *codec.Codec) {
	if c.Reads {
		o.known = make(map[uint64]memory.Owner)
	}
	c.Uint(&o.searchedNs)
	c.Text(&o.unsearched)
	codec.Table(c, o.known, func(id *uint64, o *memory.Owner) {
		c.Uint(id)
		c.Text(&o.Path)
		c.Text(&o.Tensor)
	})
}

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
	size    uint64
	perBank uint64
	banks   uint16 // in which perBank was reserved
	// unfreed is true if it ended with its device or process.
	unfreed bool
}

// Origin returns the user of the buffer, and when it ended.
func (h heldBuffer) Origin() (sharer int, number uint64) { return h.set.process.sharer(), h.end }

// heldBuffers observe the ends of buffers whose owners are known, oldest first.
type heldBuffers []heldBuffer

// died takes the end of a buffer; ended is true if its device or process ends.
func (list *heldBuffers) died(p *process, b *buffer, now uint64, ended bool) {
	owner, known := p.owners.known[b.BufferID]
	if !known {
		return
	}
	delete(p.owners.known, b.BufferID)
	if len(*list) == 2*mostHeld {
		*list, _ = newest.Shared(*list, mostHeld)
	}
	*list = append(*list, heldBuffer{
		callSite: b.callSite, Owner: owner, id: b.BufferID, since: b.SinceNs, end: now, latest: p.name.run.Latest(),
		size: b.SizeBytes, perBank: b.BytesPerBank, banks: b.Banks, unfreed: ended,
	})
}

// closed takes the end of all buffers of an arena; of all buffers of the process if only is nil. The call
// stacks of these and of those that ended before are resolved: an unresolved stack keeps all data about
// the process's code in memory.
func (list *heldBuffers) closed(p *process, only *arena, now uint64) {
	for _, id := range slices.Sorted(maps.Keys(p.owners.known)) {
		if b := p.buffers.Get(id); b != nil && (only == nil || b.arena == only) {
			list.died(p, b, now, true)
		}
	}
	for _, h := range *list {
		if h.set.process == p.name {
			h.Stack.Calls()
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
				Allocation: &memory.Allocation{BufferID: h.id, SizeBytes: h.size, BytesPerBank: h.perBank, Banks: h.banks, SinceNs: h.since},
			},
			EndNs: h.end, LatestID: h.latest, Unfreed: h.unfreed,
		})
	}
	return list
}

// code writes or reads the buffers that ended.
func (list *heldBuffers) code(c *stateCodec) {
	codec.ListUpTo(c.Codec, (*[]heldBuffer)(list), 2*mostHeld, func(h *heldBuffer) {
		c.pastSite(&h.callSite)
		c.Text(&h.Path)
		c.Text(&h.Tensor)
		c.Uints(&h.id, &h.since, &h.end, &h.latest, &h.size, &h.perBank)
		codec.Number(c.Codec, &h.banks)
		c.Bool(&h.unfreed)
	})
}
