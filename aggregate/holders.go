package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// Holders are a State, and what is allocated in it added up by what allocated it, kept
// with each event: to look at them costs that of the call stacks, not of the buffers.
// They are not safe for use by several goroutines at once.
type Holders struct {
	*State
	buffers map[holdingKey]*holding
	statics map[staticKey]*holding
	// live is how many of both hold anything.
	live int
	// mark is the time of the Mark, in ns.
	mark uint64
}

// keptEmpty is how many that hold nothing any more are kept at least, as most of
// them will hold something again.
const keptEmpty = 1024

// A holdingKey tells apart what allocated buffers of one size.
type holdingKey struct {
	stack, bytes uint64
	set          *deviceSet
	region       event.Region
	layout       event.Layout
	before       bool
}

// A staticKey tells apart what placed circular buffers of one size on one chip: a
// program ends on one chip after the other.
type staticKey struct {
	stack, bytes uint64
	pid, device  int
	kind         event.StaticKind
	before       bool
}

// A holding is what has one key.
type holding struct {
	stack                  *event.Stack
	count, fresh, allotted uint64
	since                  uint64
}

// A Holding is what one call stack of a process has allocated, of one size, on the
// same chips.
type Holding struct {
	PID    int
	Stack  *event.Stack // nil where that is not known
	Region event.Region
	// Layout is that of buffers, and Static what kind of static buffers of programs
	// they are; NotStatic for buffers.
	Layout       event.Layout
	Static       event.StaticKind
	BeforeAttach bool
	// Devices are the chips that each is on. They must not be modified.
	Devices []int
	// Bytes is what each takes on each of the chips: of all banks, or all cores.
	Bytes uint64
	// Count is how many there are, and Fresh how many of them were allocated after
	// the Mark.
	Count, Fresh uint64
	// Allocated is how many were allocated in all.
	Allocated uint64
	// SinceNs is since when there was one at any time.
	SinceNs uint64
}

// NewHolders returns Holders of a new State.
func NewHolders() *Holders {
	return &Holders{
		State:   New(),
		buffers: make(map[holdingKey]*holding),
		statics: make(map[staticKey]*holding),
	}
}

// Apply brings the state up to the event, after those that it implies.
func (h *Holders) Apply(e *event.Event) {
	for _, implied := range h.Implied(e) {
		h.apply(&implied)
	}
	h.apply(e)
}

func (h *Holders) apply(e *event.Event) {
	switch e.Kind {
	case event.Alloc:
		h.forget(e.PID, e.BufferID) // its free was lost
		h.State.Apply(e)
		if b := h.bufferOf(e.PID, e.BufferID); b != nil {
			h.add(h.holding(b), b.stack, b.since)
		}
	case event.Free:
		h.forget(e.PID, e.BufferID)
		h.State.Apply(e)
	case event.CBAlloc:
		h.allocCB(e)
	case event.CBFree:
		h.endCBs(e)
		h.State.Apply(e)
	default:
		h.State.Apply(e)
	}
}

// Mark has what is allocated from now on counted as Fresh.
func (h *Holders) Mark() {
	h.mark = h.now
	for _, one := range h.buffers {
		one.fresh = 0
	}
	for _, one := range h.statics {
		one.fresh = 0
	}
}

// MarkNs is the time of the Mark; 0 before there is one.
func (h *Holders) MarkNs() uint64 { return h.mark }

// Holdings returns what is allocated, and some that was: of those Count is 0. They are
// in no order. Circular buffers that lie in an L1 buffer are not among them.
func (h *Holders) Holdings() []Holding {
	list := make([]Holding, 0, len(h.buffers)+len(h.statics))
	for key, one := range h.buffers {
		list = append(list, one.view(Holding{
			PID: key.set.pid, Region: key.region, Layout: key.layout, BeforeAttach: key.before,
			Devices: slices.Clip(key.set.ids), Bytes: key.bytes,
		}))
	}
	return append(list, h.staticHoldings()...)
}

// staticHoldings are those of circular buffers. What is the same on several chips is
// one.
func (h *Holders) staticHoldings() []Holding {
	type same struct {
		staticKey
		count, fresh, allotted uint64
	}
	index := make(map[same]int)
	var list []Holding
	for key, one := range h.statics {
		k := same{key, one.count, one.fresh, one.allotted}
		k.device = 0
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, one.view(Holding{
				PID: key.pid, Region: event.CB, Static: key.kind, BeforeAttach: key.before, Bytes: key.bytes,
			}))
		}
		list[at].Devices = append(list[at].Devices, key.device)
		list[at].SinceNs = min(list[at].SinceNs, one.since)
	}
	for i := range list {
		slices.Sort(list[i].Devices)
	}
	return list
}

func (one *holding) view(v Holding) Holding {
	v.Stack, v.Count, v.Fresh, v.Allocated, v.SinceNs = one.stack, one.count, one.fresh, one.allotted, one.since
	return v
}

// holding is the one of the buffer.
func (h *Holders) holding(b *buffer) *holding {
	key := holdingKey{stackID(b.stack), b.allocated(), b.set, b.region, b.layout, b.beforeAttach}
	one := h.buffers[key]
	if one == nil {
		h.sweep()
		one = &holding{}
		h.buffers[key] = one
	}
	return one
}

// static is the one of a circular buffer that the process has on the chip.
func (h *Holders) static(pid, device int, entry *staticEntry) *holding {
	key := staticKey{stackID(entry.from.stack), entry.bytes(), pid, device, entry.kind, entry.from.beforeAttach}
	one := h.statics[key]
	if one == nil {
		h.sweep()
		one = &holding{}
		h.statics[key] = one
	}
	return one
}

func stackID(s *event.Stack) uint64 {
	if s == nil {
		return 0
	}
	return s.ID
}

// forget takes off a buffer that ends, where there is one.
func (h *Holders) forget(pid int, id uint64) {
	if b := h.bufferOf(pid, id); b != nil {
		h.remove(h.holding(b), b.since)
	}
}

func (h *Holders) allocCB(e *event.Event) {
	before := make(map[int]int) // how many the program has on each chip
	if p := h.known(e.PID); p != nil {
		for _, c := range p.touched(e) {
			if g := c.programs[e.ProgramID]; g != nil {
				before[c.chip.id] = len(g.static)
			}
		}
	}
	h.State.Apply(e)
	p := h.known(e.PID)
	if p == nil {
		return
	}
	for _, c := range p.touched(e) {
		g := c.programs[e.ProgramID]
		if g == nil || len(g.static) == before[c.chip.id] {
			continue // it has that place already
		}
		entry := &g.static[len(g.static)-1]
		if !entry.global {
			h.add(h.static(e.PID, c.chip.id, entry), entry.from.stack, entry.from.since)
		}
	}
}

// endCBs takes off the circular buffers that the event ends.
func (h *Holders) endCBs(e *event.Event) {
	p := h.known(e.PID)
	if p == nil {
		return
	}
	for _, c := range p.touched(e) {
		g := c.programs[e.ProgramID]
		if g == nil {
			continue
		}
		for i := range g.static {
			entry := &g.static[i]
			ends := e.StaticKind == event.NotStatic || kindOfFree(entry.kind) == e.StaticKind
			if ends && !entry.global {
				h.remove(h.static(e.PID, c.chip.id, entry), entry.from.since)
			}
		}
	}
}

// add counts one that was allocated at the time since.
func (h *Holders) add(one *holding, stack *event.Stack, since uint64) {
	if one.count == 0 {
		one.stack, one.since = stack, since
		h.live++
	}
	one.count++
	one.allotted++
	if since > h.mark {
		one.fresh++
	}
}

// remove takes off one that was allocated at the time since.
func (h *Holders) remove(one *holding, since uint64) {
	one.count--
	if since > h.mark {
		one.fresh--
	}
	if one.count == 0 {
		h.live--
	}
}

// sweep forgets those that hold nothing, where they are most.
func (h *Holders) sweep() {
	if len(h.buffers)+len(h.statics) < 2*max(h.live, keptEmpty) {
		return
	}
	for key, one := range h.buffers {
		if one.count == 0 {
			delete(h.buffers, key)
		}
	}
	for key, one := range h.statics {
		if one.count == 0 {
			delete(h.statics, key)
		}
	}
}
