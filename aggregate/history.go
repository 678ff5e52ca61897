package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// A History is a State that says of each event what came before it: which buffer a free
// ended, and what was at an address before. It takes a bounded amount of memory besides
// that of the State: 8 bytes for each buffer, and what ended last at some hundred
// thousand addresses. It is not safe for use by several goroutines at once.
type History struct {
	*State
	live   map[*deviceSet]*liveRegions
	groups map[string]int32 // of chips
	// lastGroup is that of the set last.
	last      *deviceSet
	lastGroup int32
	places    recent[placeKey, *Use]
	freed     recent[freedKey, *Use]
}

// liveRegions are the buffers of a process on the same chips, by region.
type liveRegions [event.BankedRegions]inAddressOrder

// keptUses is how many uses of addresses a History remembers at least.
const keptUses = 1 << 17

// A placeKey is an address in the banks of some chips.
type placeKey struct {
	address uint64
	group   int32 // of chips, as History.groups has it
	region  event.Region
}

type freedKey struct {
	pid int
	id  uint64
}

// A Use is a buffer that has ended.
type Use struct {
	PID                     int
	BufferID, Address       uint64
	SizeBytes, BytesPerBank uint64
	SinceNs, EndNs          uint64
	BeforeAttach            bool
	// Stack is where it was allocated; nil where that is not known.
	Stack *event.Stack
}

// A Note is what is to be said of an event besides what it has itself.
type Note struct {
	ended, replaced, overlapped *buffer
	// Earlier is what was last at the address of an Alloc, if it took another number
	// of bytes of each bank.
	Earlier *Use
	// Freed is, for a Free of a buffer that is not allocated, its earlier end.
	Freed *Use
	// Unseen marks a Free of a buffer whose allocation is not known, nor an earlier
	// end of it.
	Unseen bool
}

// Ended is the buffer that a Free ended; nil where there was none.
func (n *Note) Ended() *Held { return heldOf(n.ended) }

// Replaced is a buffer that was allocated already when it was allocated again: the
// event of its end is missing.
func (n *Note) Replaced() *Held { return heldOf(n.replaced) }

// Overlapped is a buffer that lies, at least in part, where an Alloc puts another one.
func (n *Note) Overlapped() *Held { return heldOf(n.overlapped) }

func heldOf(b *buffer) *Held {
	if b == nil {
		return nil
	}
	h := b.held()
	return &h
}

// held is the buffer as others may have it.
func (b *buffer) held() Held {
	return Held{
		PID: b.set.process.pid, TID: int(b.tid), Comm: b.comm,
		BufferID: b.id, Object: b.object, Allocator: b.allocator,
		Devices: slices.Clip(b.set.ids), Region: b.region, Layout: b.layout,
		Address: b.address, SizeBytes: b.size, PageSizeBytes: b.pageSize,
		BytesPerBank: b.perBank, Banks: b.banks, SinceNs: b.since,
		BeforeAttach: b.before, Stack: b.stack,
	}
}

// NewHistory returns a History of a new State.
func NewHistory() *History {
	return &History{
		State: New(), live: make(map[*deviceSet]*liveRegions), groups: make(map[string]int32),
		places: recent[placeKey, *Use]{keep: keptUses}, freed: recent[freedKey, *Use]{keep: keptUses},
	}
}

// Apply brings the state up to the event, after those that it implies, and gives each
// to then with what there is to say of it. A free is complete: it tells what was freed.
func (h *History) Apply(e *event.Event, then func(*event.Event, *Note)) {
	for implied := h.Implied(e); implied.Next(); {
		h.apply(implied.Event(), then)
	}
	h.apply(e, then)
}

func (h *History) apply(e *event.Event, then func(*event.Event, *Note)) {
	var n Note
	switch e.Kind {
	case event.Alloc:
		n.replaced = h.bufferOf(e.PID, e.BufferID)
		if n.replaced != nil {
			h.end(n.replaced, e.TimeNs)
		}
		h.State.Apply(e)
		if b := h.bufferOf(e.PID, e.BufferID); b != nil {
			h.begin(b, &n)
		}
	case event.Free:
		h.Complete(e)
		n.ended = h.bufferOf(e.PID, e.BufferID)
		if n.ended != nil {
			h.end(n.ended, e.TimeNs)
		} else if n.Freed = h.freed.get(freedKey{e.PID, e.BufferID}); n.Freed == nil {
			n.Unseen = true
		}
		h.State.Apply(e)
	default:
		h.State.Apply(e)
	}
	then(e, &n)
}

// bufferOf is the buffer of that id, or nil.
func (s *State) bufferOf(pid int, id uint64) *buffer {
	p := s.known(pid)
	if p == nil {
		return nil
	}
	return p.buffers.get(id)
}

// begin notes a buffer that was allocated, and what it meets.
func (h *History) begin(b *buffer, n *Note) {
	if b.perBank == 0 || len(b.set.ids) == 0 {
		return // it is not known where it lies
	}
	n.overlapped = h.overlapping(b)
	if u := h.places.get(h.place(b)); u != nil && u.BytesPerBank != b.perBank {
		n.Earlier = u
	}
	regions := h.live[b.set]
	if regions == nil {
		regions = &liveRegions{}
		h.live[b.set] = regions
	}
	regions[b.region].add(b)
}

// end notes that a buffer ends.
func (h *History) end(b *buffer, now uint64) {
	u := &Use{
		PID: b.set.process.pid, BufferID: b.id, Address: b.address, SizeBytes: b.size, BytesPerBank: b.perBank,
		SinceNs: b.since, EndNs: now, BeforeAttach: b.before, Stack: b.stack,
	}
	h.freed.set(freedKey{u.PID, u.BufferID}, u)
	regions := h.live[b.set]
	if regions == nil || !regions[b.region].remove(b) {
		return // it was in no place
	}
	h.places.set(h.place(b), u)
	for i := range regions {
		if len(regions[i].chunks) > 0 {
			return
		}
	}
	delete(h.live, b.set)
}

func (h *History) place(b *buffer) placeKey {
	if h.last != b.set {
		key := deviceKey(b.set.ids)
		group, ok := h.groups[key]
		if !ok {
			group = int32(len(h.groups))
			h.groups[key] = group
		}
		h.last, h.lastGroup = b.set, group
	}
	return placeKey{b.address, h.lastGroup, b.region}
}

// overlapping is a buffer on one of the same chips that has some of the addresses of
// this one; nil where there is none. Of several it is one on all of the same chips, or
// the first by address.
func (h *History) overlapping(b *buffer) *buffer {
	if h.live[b.set] != nil {
		if other := h.live[b.set][b.region].overlapping(b.address, b.address+b.perBank); other != nil {
			return other
		}
	}
	var first *buffer
	for set, regions := range h.live {
		if set == b.set || !set.meets(b.set) {
			continue
		}
		other := regions[b.region].overlapping(b.address, b.address+b.perBank)
		if other != nil && (first == nil || cmp.Or(cmp.Compare(other.address, first.address), cmp.Compare(other.id, first.id)) < 0) {
			first = other
		}
	}
	return first
}

// meets reports whether the sets have a chip in common.
func (s *deviceSet) meets(other *deviceSet) bool {
	for _, c := range s.chips {
		for _, d := range other.chips {
			if c.chip == d.chip {
				return true
			}
		}
	}
	return false
}

// recent remembers what was set last under each of at least keep keys, and of at most
// twice as many.
type recent[K comparable, V any] struct {
	keep       int
	young, old map[K]V
}

func (r *recent[K, V]) get(k K) V {
	if v, ok := r.young[k]; ok {
		return v
	}
	return r.old[k]
}

func (r *recent[K, V]) set(k K, v V) {
	if r.young == nil {
		r.young = make(map[K]V)
	}
	if len(r.young) >= r.keep {
		if _, ok := r.young[k]; !ok {
			r.old, r.young = r.young, make(map[K]V, r.keep)
		}
	}
	r.young[k] = v
}
