package aggregate

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// staticUsage is what the circular and dataflow buffers of programs take of a
// chip's L1.
type staticUsage struct {
	cores cores.Usage
	// sum is the plain sum over programs, in bytes.
	sum uint64
	// programs have count entries in all, and global ones that lie in buffers.
	programs, count, global uint64
	peak, peakTime          uint64
}

// A staticEntry is one circular buffer, dataflow buffer or scratchpad of a
// program.
type staticEntry struct {
	place  cores.Place
	kind   event.StaticKind
	global bool
	from   *origin
	site   *callSite // nil for a global one
}

// An origin is the event that a circular buffer or a kernel came with, shared by
// all chips of that event.
type origin struct {
	since        uint64
	stack        *event.Stack
	comm         string
	tid          int
	beforeAttach bool
}

func originOf(e *event.Event) *origin {
	return &origin{e.TimeNs, e.Stack, e.Comm, e.TID, e.BeforeAttach}
}

func (e *staticEntry) tally() tally { return tally{Amount: Amount{1, e.place.Bytes()}} }

func (s *State) allocCB(e *event.Event) {
	place, ok := s.coreSets.Place(e)
	if !ok {
		s.anomalies.MalformedEvents++
		return
	}
	entry := staticEntry{place: place, kind: e.StaticKind, global: e.Global, from: originOf(e)}
	p := s.process(e)
	for _, c := range s.set(p, e.Devices).chips {
		s.addCB(p, c, e.ProgramID, entry)
		c.grew(event.L1, e.TimeNs)
		c.chip.pools[event.L1].grew(e.TimeNs, s.applied, e.BeforeAttach && p.early)
	}
}

func (s *State) addCB(p *process, c *processChip, programID uint64, entry staticEntry) {
	g := c.program(programID)
	for _, old := range g.static {
		if old.place == entry.place && old.kind == entry.kind && old.global == entry.global {
			// The program was given the place that it has.
			return
		}
	}
	if !entry.global {
		key := siteKey{region: event.CB, static: entry.kind, before: entry.from.beforeAttach}
		entry.site = s.site(s.aloneOf(p, c).arena(0), key, entry.from.stack)
		s.addTo(entry.site, entry.tally(), entry.from.since)
	}
	c.count(&entry, len(g.static) == 0)
	g.static = append(g.static, entry)
	if !c.chip.pools[event.L1].fits() {
		return // the library has not looked yet whether they overlap a tensor
	}
	for _, u := range c.both() {
		if t := &u.static; t.cores.Max() > t.peak {
			t.peak, t.peakTime = t.cores.Max(), entry.from.since
		}
	}
}

func (s *State) freeCBs(e *event.Event) {
	p := s.known(e.PID)
	if p == nil {
		return
	}
	for _, c := range p.touched(e) {
		s.freeCBsOf(c, e.ProgramID, e.StaticKind, e.TimeNs, e.Reason)
	}
}

// freeCBsOf ends the circular buffers of a program, or those of a kind: NotStatic
// means all. Several probes report it, so that it may come more than once.
func (s *State) freeCBsOf(c *processChip, programID uint64, kind event.StaticKind, now uint64, reason event.Reason) {
	g := c.programs[programID]
	if g == nil || len(g.static) == 0 {
		return
	}
	ends := func(entry staticEntry) bool { return kind == event.NotStatic || kindOfFree(entry.kind) == kind }
	for _, entry := range g.static {
		if !ends(entry) {
			continue
		}
		if entry.site != nil {
			s.removeFrom(entry.site, entry.tally(), entry.from.since, reason)
		}
		if q := &c.chip.pools[event.L1]; q.had(&entry) {
			q.ended = append(q.ended, endedStatic{c.alone.process.pid, programID, entry})
		}
		for _, u := range c.both() {
			t := &u.static
			if entry.global {
				t.global--
				continue
			}
			t.count--
			t.sum -= entry.place.Bytes()
			t.cores.Remove(entry.place)
		}
	}
	c.chip.countCores()
	c.chip.pools[event.L1].shrank(now)
	g.static = slices.DeleteFunc(g.static, ends)
	if len(g.static) == 0 {
		for _, u := range c.both() {
			u.static.programs--
		}
	}
	c.tidy(programID)
}

// kindOfFree is the kind under which an entry is freed: scratchpads go with the
// dataflow buffers.
func kindOfFree(kind event.StaticKind) event.StaticKind {
	if kind == event.Scratchpad {
		return event.DataflowBuffer
	}
	return kind
}

// A Static is one circular buffer, dataflow buffer or scratchpad that a live
// program has on one chip.
type Static struct {
	PID       int
	Device    int
	ProgramID uint64
	// Cores must not be modified.
	Cores []event.CoreRange
	// Address is where it lies in the L1 of each core.
	Address uint64
	// BytesPerCore is its size on each core.
	BytesPerCore uint64
	Kind         event.StaticKind
	// Global marks one that lies inside an L1 buffer and is counted there.
	Global bool
	// SinceNs is the time of the event that placed it.
	SinceNs      uint64
	BeforeAttach bool
	// Stack is where it was placed; nil where that is not known.
	Stack *event.Stack
}

// Statics returns the circular and dataflow buffers of all live programs on one
// chip, in order of process, program and time.
func (s *State) Statics(device int) []Static {
	var list []Static
	for _, p := range s.byPID() {
		c := p.chips[device]
		if c == nil {
			continue
		}
		for _, id := range sortedKeys(c.programs) {
			for _, entry := range c.programs[id].static {
				list = append(list, Static{
					PID: p.pid, Device: device, ProgramID: id,
					Cores:   entry.place.Set.Ranges(),
					Address: entry.place.Start, BytesPerCore: entry.place.BytesPerCore(),
					Kind: entry.kind, Global: entry.global, SinceNs: entry.from.since,
					BeforeAttach: entry.from.beforeAttach, Stack: entry.from.stack,
				})
			}
		}
	}
	return list
}
