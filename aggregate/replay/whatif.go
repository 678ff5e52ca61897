package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ttmem/aggregate/lives"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A WhatIf is a program that differs from the recorded one by Changes, all of which count together.
type WhatIf struct {
	Changes []Change

	// LeftOut is the number of allocations that are not made, and Moved that of those in another region or before others.
	LeftOut, Moved uint64
	// Early is the number of buffers that are freed before they were as recorded, after their last use.
	Early uint64
	// Sharded is the number of sharded buffers that keep their bytes of each bank on another board: whether their
	// cores exist there is not known.
	Sharded uint64
	// Failed is the number of allocations and programs that succeeded as recorded, but not with the changes, and
	// FirstFailed the call stack of the first one, in FirstRegion: CB for circular buffers that overlap a tensor.
	Failed      uint64
	FirstFailed *event.Stack
	FirstRegion event.Region
	// Doubt is the first reason why some of its allocations are not known; "" if all are.
	Doubt string
	// Most is what is allocated at most of each bank, in the allocator with the most.
	Most [event.BankedRegions]uint64

	// impossible says why what it allocates first, or frees early, cannot be; "" if it can.
	impossible string
	// due are the buffers that are to be freed.
	due []due
}

// A due is a buffer, in Lives, that is to be freed after an event.
type due struct {
	after lives.Moment
	life  uint32
}

// A Change is one difference from the recorded program. Its functions are nil where it makes none. They may remember
// what they saw, so a Change belongs to one WhatIf.
type Change struct {
	// sizes changes the regions of a device that a process opens. doubt says why they are not known.
	sizes func(pid int, of *sizes) (doubt string)
	// alloc changes an allocation before it is made, also one that failed.
	alloc func(*allocation)
	// after does something after an event was played.
	after func(*step)
	// first selects the buffers that are allocated when their device opens.
	first Sites
	// free selects the buffers that are freed after their last use.
	free func(i int, b *lives.Life) bool
}

// Sites selects call stacks, which may be nil.
type Sites func(*event.Stack) bool

// sizes are those of a device: its regions, and the argument trace_region_size, which is nil if it is as recorded.
type sizes struct {
	memory.Capacities
	trace *uint64
}

// An allocation is one as recorded, until changes change it.
type allocation struct {
	*event.Event
	region  event.Region
	size    uint64 // in all banks
	bytes   uint64 // of each bank
	omitted bool
	doubt   string
}

// A step is an event that was played, in a process, and one of the changed programs.
type step struct {
	*Replay
	*event.Event
	process *process
	change  int
}

// free frees the buffers of the selected call sites in the process, and returns how many.
func (s *step) free(of Sites) (freed int) {
	for _, b := range s.process.live {
		if b.changed != nil && b.changed[s.change] != nil && of(b.changed[s.change].of) {
			b.remove(s.change)
			freed++
		}
	}
	return freed
}

// doubt says why nothing is known of the process from here on.
func (s *step) doubt(why string) {
	for _, a := range s.process.allocators {
		s.whatIfs[s.change].doubts(&a.changed[s.change], why)
	}
}

// sizes returns the sizes of a device with the changes. doubt says why they are not known.
func (w *WhatIf) sizes(pid int, recorded memory.Capacities) (with sizes, doubt string) {
	with.Capacities = recorded
	for i := range w.Changes {
		if change := w.Changes[i].sizes; change != nil {
			doubt = cmp.Or(doubt, change(pid, &with))
		}
	}
	return with, doubt
}

// change returns an allocation with the changes: of another size, in another region or with other banks it has other bytes of
// each bank.
func (w *WhatIf) change(c *changed, a *allocator, e *event.Event) allocation {
	one := allocation{Event: e, region: e.Region, size: e.SizeBytes, bytes: e.BytesPerBank}
	for i := range w.Changes {
		if change := w.Changes[i].alloc; change != nil {
			changed := one // most programs change none, and make none on the heap
			change(&changed)
			one = changed
		}
	}
	moved := one.region != e.Region
	switch {
	case one.omitted || !moved && c.banks[e.Region] == a.banks[e.Region] && one.size == e.SizeBytes:
	case e.Layout.Sharded() && moved:
		one.doubt = "a buffer that is moved is sharded: its banks in " + one.region.String() + " are not known"
	case e.Layout.Sharded():
		if one.size != e.SizeBytes && c.chip != nil { // the same cores have more of it
			grown := float64(e.BytesPerBank) * float64(one.size) / float64(max(e.SizeBytes, 1))
			one.bytes = roundUp(max(uint64(math.Ceil(grown-1e-6)), 1), c.chip.alignment)
		}
	case interleaved(e, e.SizeBytes, e.Region, uint64(a.banks[e.Region]), a.chip) != e.BytesPerBank:
		one.doubt = "the pages of a buffer are not known"
	default:
		if one.bytes = interleaved(e, max(one.size, 1), one.region, uint64(c.banks[one.region]), c.chip); one.bytes == 0 {
			one.doubt = "the pages of a buffer are not known"
		}
	}
	return one
}

// interleaved returns what an interleaved buffer of a size takes of each bank; 0 if that is not known.
func interleaved(e *event.Event, size uint64, region event.Region, banks uint64, on *chip) uint64 {
	if e.Layout != event.Interleaved || e.PageSizeBytes == 0 || banks == 0 || on == nil {
		return 0
	}
	page := roundUp(e.PageSizeBytes, 16)
	if region == event.DRAM {
		page = roundUp(e.PageSizeBytes, on.alignment)
	}
	pages := (size + e.PageSizeBytes - 1) / e.PageSizeBytes
	return roundUp((pages+banks-1)/banks*page, on.alignment)
}

// alloc makes an allocation with the changes, and returns its block; nil if there is none.
func (w *WhatIf) alloc(c *changed, a *allocator, e *event.Event, class Class) *block {
	key := earlyKey{e.Kind, e.BufferID}
	if b, made := c.early[key]; made {
		delete(c.early, key)
		w.Moved++
		return b
	}
	one := w.change(c, a, e)
	s, recorded := &c.spaces[one.region], &a.spaces[e.Region]
	address, fits := e.Address, true
	switch {
	case one.omitted:
		w.LeftOut++
		return nil
	case one.doubt != "":
		w.doubts(c, one.doubt)
		return nil
	case class <= OtherEnd:
		address, fits = s.fit(one.bytes, FromTop(one.region) == (class == Predicted || one.region != e.Region))
	case s.in(address, address+one.bytes) != nil || s.base != recorded.base || s.end != recorded.end || one.bytes != e.BytesPerBank:
		w.doubts(c, "an address that was not predicted would be another one")
		return nil
	}
	if !fits {
		if e.Kind == event.Alloc {
			w.fails(e.Stack, one.region)
		}
		return nil
	}
	if e.Layout.Sharded() && c.banks[one.region] != a.banks[one.region] {
		w.Sharded++
	}
	if one.region != e.Region {
		w.Moved++
	}
	b := s.block(address, one.bytes, e.Stack)
	b.region = one.region
	s.add(b)
	w.Most[one.region] = max(w.Most[one.region], s.bytes)
	return b
}

// doubts says why nothing is known of an allocator from here on; "" if something is.
func (w *WhatIf) doubts(c *changed, why string) {
	c.doubt, w.Doubt = cmp.Or(c.doubt, why), cmp.Or(w.Doubt, why)
}

func (w *WhatIf) fails(at *event.Stack, region event.Region) {
	if w.Failed++; w.Failed == 1 {
		w.FirstFailed, w.FirstRegion = at, region
	}
}

// An earlyKey is an allocation that is made when its device opens: its buffer or, if it failed as recorded, its time.
type earlyKey struct {
	kind event.Kind
	id   uint64
}

// mostEarly is how many allocations are made when devices open.
const mostEarly = 1 << 16

// An opening is one of an allocator, in order.
type opening struct {
	pid       int
	allocator uint64
}

// ahead sees an event before the recording is played: the allocations of Change.first are made when their device opens.
func (r *Replay) ahead(e *event.Event) {
	key := opening{e.PID, e.Allocator}
	switch {
	case e.Kind == event.DeviceOpen && e.Cause == "":
		r.opened++
		r.openings[key] = r.opened
	case e.Kind != event.Alloc && (e.Kind != event.AllocFailed || e.Reason != event.ReasonOutOfMemory) ||
		e.BeforeAttach || e.PerCore || e.BytesPerBank == 0 || int(e.Region) >= event.BankedRegions:
	default:
		for i, w := range r.whatIfs {
			for c := range w.Changes {
				if first := w.Changes[c].first; first == nil || !first(e.Stack) {
					continue
				} else if r.earlyCount++; r.earlyCount <= mostEarly {
					one := *e
					n := r.openings[key]
					r.early[n] = append(r.early[n], early{i, &one})
					switch {
					case n == 0:
						w.impossible = "the device was open before the recording began"
					case name.ResultOfOperation(e.Stack.Frames()):
						w.impossible = "the result of an operation cannot be allocated before its inputs"
					}
				}
				break
			}
		}
	}
}

// An early is an allocation that one of the changed programs makes when its device opens.
type early struct {
	change int
	event  *event.Event
}

// allocEarly makes the allocations that changed programs make when this device opens, the number of which is n.
func (r *Replay) allocEarly(a *allocator, n int) {
	for _, one := range r.early[n] {
		c := &a.changed[one.change]
		key := earlyKey{one.event.Kind, one.event.BufferID}
		if one.event.Kind == event.AllocFailed {
			key.id = one.event.TimeNs
		}
		b := r.whatIfs[one.change].alloc(c, a, one.event, Predicted)
		if c.early == nil {
			c.early = make(map[earlyKey]*block)
		}
		c.early[key] = b
		if r.earlyCount > mostEarly {
			r.whatIfs[one.change].doubts(c, "too many buffers would be allocated first")
		}
	}
}

// Play plays all events, which play passes to a function. It plays them twice if a change depends on later ones.
func (r *Replay) Play(play func(handle func(*event.Event)) error) error {
	first, free := r.changes(func(c *Change) bool { return c.first != nil }), r.changes(func(c *Change) bool { return c.free != nil })
	var ahead []func(*event.Event)
	if first {
		r.openings, r.early = make(map[opening]int), make(map[int][]early)
		ahead = append(ahead, r.ahead)
	}
	if free && r.Lives == nil {
		r.Lives = lives.New()
		ahead = append(ahead, r.Lives.Apply)
	}
	if len(ahead) > 0 {
		if err := play(func(e *event.Event) {
			for _, see := range ahead {
				see(e)
			}
		}); err != nil {
			return err
		}
	}
	r.opened = 0
	if free {
		r.Lives.End()
		for i := range r.whatIfs {
			r.plan(i)
		}
	}
	return play(r.Apply)
}

// changes reports whether there is such a change.
func (r *Replay) changes(is func(*Change) bool) bool {
	return slices.ContainsFunc(r.whatIfs, func(w *WhatIf) bool {
		for i := range w.Changes {
			if is(&w.Changes[i]) {
				return true
			}
		}
		return false
	})
}

// plan has the buffers that one of the changed programs frees after their last use, in the order of that.
func (r *Replay) plan(i int) {
	w := r.whatIfs[i]
	for c := range w.Changes {
		of := w.Changes[c].free
		if of == nil {
			continue
		}
		for n := range r.Lives.All {
			switch one := &r.Lives.All[n]; {
			case !of(n, one):
			case !one.IsKnown():
				w.impossible = "whether a buffer is used after its last known use is not known"
			case one.Idle() < one.End:
				w.due = append(w.due, due{one.Idle(), uint32(n)})
			}
		}
	}
	slices.SortFunc(w.due, func(a, b due) int { return cmp.Compare(a.after, b.after) })
}

// freeIdle frees the buffers that the changed programs do not use any more.
func (r *Replay) freeIdle() {
	for i, w := range r.whatIfs {
		for ; len(w.due) > 0 && w.due[0].after <= r.now; w.due = w.due[1:] {
			one := &r.Lives.All[w.due[0].life]
			p := r.processes[one.In.PID]
			if p == nil {
				continue
			}
			if b := p.live[one.ID]; b != nil && b.changed != nil && b.changed[i] != nil {
				b.remove(i)
				w.Early++
			}
		}
	}
}

// Whole returns whether the whole recording fits in one of the changed programs, the ith.
func (r *Replay) Whole(i int) Verdict {
	w := r.whatIfs[i]
	v := Verdict{Fits: w.Failed == 0, Doubt: w.Doubt}
	v.Doubt = cmp.Or(v.Doubt, w.impossible)
	for class := BeforeAttach; class < NumClasses; class++ {
		if n := r.Counts[class]; n > 0 && v.Doubt == "" {
			v.Doubt = fmt.Sprintf("%d allocations are not predicted (%s)", n, class)
		}
	}
	return v
}
