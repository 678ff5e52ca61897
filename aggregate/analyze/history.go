package analyze

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A History is a State that also relates each event to earlier ones: which buffer a free
// ended, and which buffer had an address before. Besides the State it takes a bounded amount
// of memory, for the latest use of some hundred thousand addresses. It is not safe for
// concurrent use.
type History struct {
	*aggregate.State
	// lastKey is the key of the chips last, because most events have the same chips as the one
	// before.
	last    []int
	lastKey string
	places  recent[placeKey, *Use]
	freed   recent[freedKey, *Use]
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

// A Use is a buffer that ended.
type Use struct {
	PID                     int
	BufferID, Address       uint64
	SizeBytes, BytesPerBank uint64
	SinceNs, EndNs          uint64
	BeforeAttach            bool
	// Stack is its call stack, and FreedBy that of its free; nil if that is not known.
	Stack, FreedBy *event.Stack
}

// A Note relates an event to earlier ones.
type Note struct {
	// Ended is the buffer that a Free ended.
	Ended *Use
	// Replaced is the live buffer with the same id as the buffer of an Alloc: the event of its
	// end is missing.
	Replaced *Use
	// Earlier is the latest use of the address of an Alloc, if it had another size.
	Earlier *Use
	// Freed is the earlier end of the buffer of a Free, if it is not live.
	Freed *Use
	// Unseen marks a Free of a buffer whose allocation and earlier end are not known.
	Unseen bool
}

// NewHistory returns a History of a new State.
func NewHistory() *History {
	return &History{
		State:  aggregate.New(),
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
		n.Replaced = h.end(e)
		if isPlaced(e.Devices, e.BytesPerBank, e.PerCore) {
			if u := h.places.get(h.placeKey(e.Devices, e.Region, e.Address)); u != nil && u.BytesPerBank != e.BytesPerBank {
				n.Earlier = u
			}
		}
	case event.Free:
		h.Complete(e)
		if n.Ended = h.end(e); n.Ended == nil {
			n.Freed = h.freed.get(freedKey{e.PID, e.BufferID})
			n.Unseen = n.Freed == nil
		}
	}
	h.State.Apply(e)
	then(e, &n)
}

// end remembers the end of the live buffer of an event; nil if there is none.
func (h *History) end(e *event.Event) *Use {
	b := h.Buffer(e.PID, e.BufferID)
	if b == nil {
		return nil
	}
	u := &Use{
		PID: b.PID, BufferID: b.BufferID, Address: b.Address, SizeBytes: b.SizeBytes, BytesPerBank: b.BytesPerBank,
		SinceNs: b.SinceNs, EndNs: e.TimeNs, BeforeAttach: b.BeforeAttach, Stack: b.Stack,
	}
	if e.Kind == event.Free && !e.Reason.IsEnd() {
		u.FreedBy = e.Stack
	}
	h.freed.set(freedKey{u.PID, u.BufferID}, u)
	if isPlaced(b.Devices, b.BytesPerBank, b.PerCore) {
		h.places.set(h.placeKey(b.Devices, b.Region, b.Address), u)
	}
	return u
}

// isPlaced reports whether the addresses of a buffer are known, and the same in all banks.
func isPlaced(devices []int, perBank uint64, perCore bool) bool {
	return len(devices) > 0 && perBank > 0 && !perCore
}

func (h *History) placeKey(devices []int, region event.Region, address uint64) placeKey {
	if !slices.Equal(h.last, devices) {
		h.last, h.lastKey = slices.Clone(devices), memory.DevicesKey(devices)
	}
	return placeKey{address, h.lastKey, region}
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
