package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A History is a State that also relates each event to earlier ones: which buffer a free
// ended, and which buffer had an address before. Besides the State it takes 8 bytes for each
// live buffer, and a bounded amount for the latest use of some hundred thousand addresses.
// It is not safe for concurrent use.
type History struct {
	*aggregate.State
	// live has the buffers in order of address. The State has the addresses too, but orders
	// them when free space is read, many at once and without the buffers; a History needs the
	// neighbours of each Alloc.
	live map[liveKey]*liveBuffers
	// lastKey is the key of the chips last, because most events have the same chips as the one
	// before.
	last    []int
	lastKey string
	places  recent[placeKey, *Use]
	freed   recent[freedKey, *Use]
}

// A liveKey is a process and the chips that its buffers are on: see memory.DevicesKey.
type liveKey struct {
	pid     int
	devices string
}

// liveBuffers are the live buffers of a process on the same chips, by region.
type liveBuffers struct {
	devices []int
	regions [event.BankedRegions]addressOrder
}

// minUses is how many uses of addresses a History remembers at least.
const minUses = 1 << 17

// A placeKey is an address in the banks of a list of chips.
type placeKey struct {
	address uint64
	devices string
	region  event.Region
}

type freedKey struct {
	pid int
	id  uint64
}

// A Use is a buffer that was freed.
type Use struct {
	PID                     int
	BufferID, Address       uint64
	SizeBytes, BytesPerBank uint64
	SinceNs, EndNs          uint64
	BeforeAttach            bool
	// Stack is its call stack; nil if that is not known.
	Stack *event.Stack
}

// A Note relates an event to earlier ones.
type Note struct {
	ended, replaced, overlapped aggregate.BufferRef
	// Earlier is the latest use of the address of an Alloc, if it had another size.
	Earlier *Use
	// Freed is the earlier end of the buffer of a Free, if it is not live.
	Freed *Use
	// Unseen marks a Free of a buffer whose allocation and earlier end are not known.
	Unseen bool
}

// Ended returns the buffer that a Free ended; nil if there was none.
func (n *Note) Ended() *memory.Buffer { return n.ended.Buffer() }

// Replaced returns the live buffer with the same id as the buffer of an Alloc: the event of its
// end is missing.
func (n *Note) Replaced() *memory.Buffer { return n.replaced.Buffer() }

// Overlapped returns a live buffer that shares addresses with the buffer of an Alloc.
func (n *Note) Overlapped() *memory.Buffer { return n.overlapped.Buffer() }

// NewHistory returns a History of a new State.
func NewHistory() *History {
	return &History{
		State: aggregate.New(), live: make(map[liveKey]*liveBuffers),
		places: recent[placeKey, *Use]{keep: minUses}, freed: recent[freedKey, *Use]{keep: minUses},
	}
}

// Apply applies the events that e implies and then e. It calls then for each of them with
// its Note. Frees have the fields that State.Complete sets.
func (h *History) Apply(e *event.Event, then func(*event.Event, *Note)) {
	for implied := range h.Implied(e) {
		h.apply(implied, then)
	}
	h.apply(e, then)
}

func (h *History) apply(e *event.Event, then func(*event.Event, *Note)) {
	var n Note
	switch e.Kind {
	case event.Alloc:
		n.replaced = h.Ref(e.PID, e.BufferID)
		h.end(n.replaced, e.TimeNs)
		h.State.Apply(e)
		h.begin(h.Ref(e.PID, e.BufferID), &n)
	case event.Free:
		h.Complete(e)
		n.ended = h.Ref(e.PID, e.BufferID)
		if n.ended == (aggregate.BufferRef{}) {
			n.Freed = h.freed.get(freedKey{e.PID, e.BufferID})
			n.Unseen = n.Freed == nil
		}
		h.end(n.ended, e.TimeNs)
		h.State.Apply(e)
	case event.Checkpoint:
		h.State.Apply(e)
		for _, view := range h.Buffers() {
			h.begin(h.Ref(view.PID, view.BufferID), &n)
		}
		n = Note{}
	default:
		h.State.Apply(e)
	}
	then(e, &n)
}

// begin adds a buffer that was allocated, if its addresses are known and the same in all
// banks.
func (h *History) begin(b aggregate.BufferRef, n *Note) {
	view := b.Buffer()
	if view == nil || view.BytesPerBank == 0 || len(view.Devices) == 0 || view.PerCore {
		return
	}
	devices := h.devicesKey(view.Devices)
	n.overlapped = h.overlapping(view, devices)
	if u := h.places.get(placeKey{view.Address, devices, view.Region}); u != nil && u.BytesPerBank != view.BytesPerBank {
		n.Earlier = u
	}
	key := liveKey{view.PID, devices}
	live := h.live[key]
	if live == nil {
		live = &liveBuffers{devices: view.Devices}
		h.live[key] = live
	}
	live.regions[view.Region].add(b)
}

// end remembers the end of a buffer, if there is one.
func (h *History) end(b aggregate.BufferRef, now uint64) {
	view := b.Buffer()
	if view == nil {
		return
	}
	u := &Use{
		PID: view.PID, BufferID: view.BufferID, Address: view.Address, SizeBytes: view.SizeBytes, BytesPerBank: view.BytesPerBank,
		SinceNs: view.SinceNs, EndNs: now, BeforeAttach: view.BeforeAttach, Stack: view.Stack,
	}
	h.freed.set(freedKey{u.PID, u.BufferID}, u)
	devices := h.devicesKey(view.Devices)
	key := liveKey{view.PID, devices}
	live := h.live[key]
	if live == nil || !live.regions[view.Region].remove(b) {
		return // its addresses were not known
	}
	h.places.set(placeKey{view.Address, devices, view.Region}, u)
	if !slices.ContainsFunc(live.regions[:], func(o addressOrder) bool { return len(o.chunks) > 0 }) {
		delete(h.live, key)
	}
}

func (h *History) devicesKey(devices []int) string {
	if !slices.Equal(h.last, devices) {
		h.last, h.lastKey = devices, memory.DevicesKey(devices)
	}
	return h.lastKey
}

// overlapping returns a live buffer on one of the same chips that shares addresses with
// this one. If there are several, it prefers one of the same process and chips, and then
// the first by address.
func (h *History) overlapping(view *memory.Buffer, devices string) aggregate.BufferRef {
	start, end := view.Address, view.Address+view.BytesPerBank
	same := liveKey{view.PID, devices}
	if live := h.live[same]; live != nil {
		if b := live.regions[view.Region].overlapping(start, end); b != (aggregate.BufferRef{}) {
			return b
		}
	}
	var first *memory.Buffer
	var found aggregate.BufferRef
	for key, live := range h.live {
		onSame := slices.ContainsFunc(live.devices, func(id int) bool { return slices.Contains(view.Devices, id) })
		if key == same || !onSame {
			continue
		}
		b := live.regions[view.Region].overlapping(start, end)
		other := b.Buffer()
		if other != nil && (first == nil || cmp.Or(cmp.Compare(other.Address, first.Address), cmp.Compare(other.BufferID, first.BufferID)) < 0) {
			first, found = other, b
		}
	}
	return found
}

// recent remembers the latest values of at least keep keys, and of at most twice as many.
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
