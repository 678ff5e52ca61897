package aggregate

import (
	"iter"
	"maps"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/internal/byid"
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/internal/resident"
	"ttmem/aggregate/internal/space"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/uses"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// A process is a running process, according to the events.
type process struct {
	state      *State
	pid        int
	name       *processName
	since      uint64
	kept       kept
	buffers    byid.Table[buffer]
	owners     owners
	used       *uses.Buffers // nil: not known
	host       resident.Use
	chips      map[int]*processChip
	sets       []*deviceSet
	allocators map[uint64]*allocator
	coreSets   cores.Sets
	// totals are its buffers on all its chips: the live ones for NoReason, and for the reasons of
	// Reason.IsEnd those that ended without being freed.
	totals [event.ReasonProcessExit + 1][event.BankedRegions]memory.Tally
	freed  deallocations
	// beforeAttach is how many buffers it had when ttmem attached.
	beforeAttach uint64
	// early is true if it was running at the state's first event.
	early  bool
	losses memory.Losses
	// fromBegin is true if no event came before its start.
	fromBegin bool
	// reports is true if its library reports runs of programs. compiled is the latest program that was
	// compiled before the first report, plus 1.
	reports  bool
	compiled uint64
	// traces are those that are captured, in order of their captures. captures is true if the library
	// reports captures.
	traces    []*trace
	captures  bool
	newcomers newcomers
}

// A processChip is the use of one chip by one process.
type processChip struct {
	chip *chip
	used peak.Use
	// peaks are the most that the process itself had of each region, in bytes as pools count them. The
	// chip's peak is another question, often with another moment, and only pools have a timeline and
	// call sites.
	peaks  peak.Peaks
	covers covers
	// open is true if the process has an allocator open whose capacities are known. own are
	// its capacities, also after the last one was closed.
	open     bool
	own      memory.Capacities
	programs map[uint64]*program
	changes  uint64 // of the circular buffers of programs
	// ran is true if a program ran there, and loaded if the kernels of one were reported.
	ran, loaded bool
	// alone is the set of only this chip. Circular buffers and kernels belong to it.
	alone *deviceSet
}

// both returns the two totals to which an allocation adds: of the process, and of all processes.
func (c *processChip) both() [2]*peak.Use { return [2]*peak.Use{&c.used, &c.chip.used} }

// A program is a tt-metal program on one chip.
type program struct {
	static []staticEntry
	// steps is the number of cores in the different sets of cores of static.
	steps  int
	kernel *kernel
	// run is the latest one; nil if it is not known, or if the library refused it.
	run *run
	// l1 is its use of L1 without buffers on single cores, if it is known.
	l1    memory.CoreUse
	known bool
}

// process returns the process of the event, and creates it at its first event.
func (s *State) process(e *event.Event) *process {
	p := s.known(e.PID)
	if p == nil {
		p = newProcess(s, e.PID)
		p.name.comm, p.since = e.Comm, e.TimeNs
		s.processes[e.PID] = p
	}
	if p.name.comm == "" {
		p.name.comm = e.Comm
	}
	s.last = p
	return p
}

func newProcess(s *State, pid int) *process {
	return &process{
		state: s, pid: pid, name: &processName{pid: pid},
		chips:      make(map[int]*processChip),
		allocators: make(map[uint64]*allocator),
	}
}

// known returns the process with that id, or nil. Events that end something do not create a
// process.
func (s *State) known(pid int) *process {
	if s.last != nil && s.last.pid == pid {
		return s.last
	}
	return s.processes[pid]
}

func (s *State) startProcess(e *event.Event) {
	if p := s.known(e.PID); e.Reread && p != nil {
		p.name.about.Command = e.Started().Command // it was not known before
		return
	}
	// The same id again means another process, or another program after exec.
	s.endProcess(e.PID, e.TimeNs, event.UnknownStatus)
	p := s.process(e)
	start := e.Started()
	p.name.about = memory.About{
		Command: start.Command, Library: start.Library, Release: start.Release, UID: e.UID,
		Container: start.Container, Pod: start.Pod, ContainerPID: start.ContainerPID, AttachedLate: start.AttachedLate,
	}
	p.name.outside = int(e.Count)
	p.fromBegin = !s.beginning.over
	p.early = start.AttachedLate && !s.restored && e.TimeNs-min(e.TimeNs, s.first) <= earlyNs
}

// earlyNs is how long after the first event a new process may be one that was already running. A busy host finds
// such a process seconds later.
const earlyNs = 5e9

func (s *State) endProcess(pid int, now uint64, status int) {
	s.resolveStacks(pid)
	p := s.known(pid)
	if p == nil {
		return
	}
	for _, c := range p.chips {
		if r := c.chip.run; r != nil && r.by == c {
			c.chip.begin(nil)
			if !p.reports {
				c.chip.pools[event.L1].AtLeast = true
			}
		}
	}
	p.closed(nil, now, event.ReasonProcessExit)
	for _, c := range p.chips {
		for id := range c.programs {
			p.freeCBsOf(c, id, event.NotStatic, event.ReasonProcessExit)
			p.unloadKernel(c, id, event.ReasonProcessExit)
		}
	}
	clear(p.allocators)
	p.updateCapacities(slices.Collect(maps.Values(p.chips)))
	s.forgetEnded(p)
	view := p.view()
	view.Exit = &memory.Exit{TimeNs: now}
	if status != event.UnknownStatus {
		view.Exit.Status = &status
	}
	s.exited.add(view, p.name.sharer())
	p.release()
	for _, set := range p.sets {
		set.retire()
	}
	for _, c := range p.chips {
		if c.alone != nil {
			c.alone.retire()
		}
	}
	delete(s.processes, pid)
	s.last = nil
}

// Ended returns the latest process with that id that ended, and to whom it counts; nil if there is none. It
// must not be modified.
func (s *State) Ended(pid int) (p *memory.Process, sharer int) {
	for _, one := range slices.Backward(s.exited.list) {
		if one.PID == pid {
			return &one.Process, one.sharer
		}
	}
	return nil, 0
}

// A deviceSet is the chips of one mesh or device of a process.
type deviceSet struct {
	process *processName
	ids     []int
	sorted  []int  // ids, ascending and each once
	devices string // memory.DevicesKey of ids
	// chips are empty once the process has ended, and count is how many there were.
	chips []*processChip
	count int
	ended bool
	// arenas are those of open allocators, by the addresses of the allocators.
	arenas    map[uint64]*arena
	lastArena *arena
	// pools are those of its chips, by region; without chips, State.unplaced.
	pools [event.BankedRegions][]*peak.Pool
	// sites are the call sites, each with its first allocator.
	sites map[memory.SiteKey]*callSite
	// operations are by their stack IDs.
	operations map[uint64]*operation
	// recent caches sites by their stack IDs.
	recent []*callSite
}

// callSites returns the call sites of the set: those of one arena, or all if only is nil.
func (d *deviceSet) callSites(only *arena) iter.Seq[*callSite] {
	return func(yield func(*callSite) bool) {
		for _, first := range d.sites {
			for c := first; c != nil; c = c.other {
				if (only == nil || c.arena == only) && !yield(c) {
					return
				}
			}
		}
	}
}

// set returns the set of these chips. A process has few sets.
func (p *process) set(ids []int) *deviceSet {
	for _, d := range p.sets {
		if slices.Equal(d.ids, ids) {
			return d
		}
	}
	if len(ids) > 0 && !p.link(1+len(ids)) {
		return p.set(nil)
	}
	d := p.newSet(ids)
	p.sets = append(p.sets, d)
	return d
}

func (p *process) newSet(ids []int) *deviceSet {
	var chips []*processChip
	d := p.state.makeSet(p.name, ids, func(id int) *chip {
		c := p.chips[id]
		if c == nil {
			of := p.state.chip(p, id)
			if of == nil {
				return nil
			}
			c = &processChip{chip: of, programs: make(map[uint64]*program)}
			p.chips[id] = c
			c.chip.addUser(p.name.about.UID)
		}
		chips = append(chips, c)
		return c.chip
	})
	d.chips = chips
	return d
}

// endedSet returns the set of chips of a process that ended: only what its call sites need.
func (s *State) endedSet(name *processName, ids []int) *deviceSet {
	d := s.makeSet(name, ids, func(id int) *chip { return s.chips[id] })
	d.ended = true
	return d
}

// makeSet returns a set of those chips that exist.
func (s *State) makeSet(name *processName, ids []int, chipOf func(id int) *chip) *deviceSet {
	d := &deviceSet{
		process: name, ids: slices.Clip(slices.Clone(ids)), devices: memory.DevicesKey(ids),
		arenas: make(map[uint64]*arena), sites: make(map[memory.SiteKey]*callSite), operations: make(map[uint64]*operation),
		recent: make([]*callSite, leastRecent),
	}
	var chips []*chip
	seen := make(map[int]bool)
	for _, id := range d.ids {
		if !seen[id] {
			seen[id] = true
			if c := chipOf(id); c != nil {
				chips = append(chips, c)
			}
		}
	}
	d.sorted = sortedKeys(seen)
	if d.count = len(chips); d.count == 0 {
		chips = append(chips, s.unplaced)
	}
	for _, c := range chips {
		for region := range d.pools {
			d.pools[region] = append(d.pools[region], &c.pools[region])
		}
	}
	return d
}

// common returns how many chips two sets have in common. A process may claim many sets of many chips.
func (d *deviceSet) common(other *deviceSet) (n int) {
	if d == other {
		return len(d.sorted)
	}
	for a, b := d.sorted, other.sorted; len(a) > 0 && len(b) > 0; {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			n, a, b = n+1, a[1:], b[1:]
		}
	}
	return n
}

// retire removes what nothing needs after the end of the process. Its call sites may stay.
func (d *deviceSet) retire() {
	d.chips, d.ended = nil, true
	for _, a := range d.arenas {
		a.blocks = space.Lists{}
	}
}

// arena returns the arena of an allocator of a process on a set of chips, and creates it if needed.
func (p *process) arena(d *deviceSet, allocator uint64) *arena {
	if a := d.lastArena; a != nil && a.allocator == allocator && !a.closed {
		return a
	}
	a := d.arenas[allocator]
	if a == nil && allocator != 0 {
		full := len(d.arenas) > maxAllocators
		if full {
			p.beyond()
		}
		if full || !p.link(1) {
			return p.arena(d, 0)
		}
	}
	if a == nil {
		a = &arena{set: d, allocator: allocator}
		d.arenas[allocator] = a
	}
	d.lastArena = a
	return a
}

// arenas returns those of all sets of the process, in order.
func (p *process) arenas() iter.Seq[*arena] {
	return func(yield func(*arena) bool) {
		for _, set := range p.sets {
			for _, a := range sortedValues(set.arenas) {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// aloneOf returns the set of only one chip of a process.
func (p *process) aloneOf(c *processChip) *deviceSet {
	if c.alone == nil {
		c.alone = p.newSet([]int{c.chip.id})
	}
	return c.alone
}

// program returns the program with that id, and creates it if needed.
func (c *processChip) program(id uint64) *program {
	g := c.programs[id]
	if g == nil {
		g = &program{}
		c.programs[id] = g
	}
	return g
}

// costOf returns how much an allocation of a program counts: with the program, if it is the first one.
func (c *processChip) costOf(id uint64) int {
	if c.programs[id] == nil {
		return 1 + quota.Program
	}
	return 1
}

// tidy removes the program of a process if it has neither circular buffers nor kernels.
func (p *process) tidy(c *processChip, id uint64) {
	if g := c.programs[id]; g != nil && len(g.static) == 0 && g.kernel == nil {
		delete(c.programs, id)
		p.hold(-quota.Program)
	}
}

// touched returns the chips of an event; all chips of the process if the event names none.
func (p *process) touched(e *event.Event) []*processChip {
	var chips []*processChip
	for id, c := range p.chips {
		if len(e.Devices) == 0 || slices.Contains(e.Devices, id) {
			chips = append(chips, c)
		}
	}
	return chips
}
