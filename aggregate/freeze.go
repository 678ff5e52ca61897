package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/tracer/event"
)

// Freeze returns what Checkpoint does, of the state as it is now: the state may
// change while the events are iterated, also by another goroutine. Freeze itself
// lists no more than pointers to what does not change; the events are put in order
// where they are iterated, which takes 40 bytes for each buffer. Each event is only
// valid until the next one.
//
// Where wanted is not nil, what processes have of whose user it says no is left
// out: their events are not told.
func (s *State) Freeze(wanted func(uid int) bool) iter.Seq[*event.Event] {
	f := s.freeze(wanted)
	return func(yield func(*event.Event) bool) {
		var e event.Event
		for _, m := range f.inOrder() {
			e = event.Event{TimeNs: m.time}
			m.tells.tell(&e)
			if !yield(&e) {
				return
			}
		}
	}
}

// frozen is what a State knows at one time.
type frozen struct {
	// few are moments of which there are not many.
	few     []moment
	running []frozenProcess
}

// A frozenProcess is what a process that runs has many of.
type frozenProcess struct {
	rank
	pid          int
	buffers      []*buffer // which never change
	programs     []frozenProgram
	left         process // nothing but what it left
	beforeAttach uint64
}

// A frozenProgram is a circular buffer or the kernels of a program on one chip.
type frozenProgram struct {
	device int
	id     uint64
	static staticEntry
	kernel *kernel // nil: it is a circular buffer; it never changes
}

// freeze lists what is to be told. Failures come first, as they need no process;
// processes that ended come before those that run, which may have their ids.
func (s *State) freeze(wanted func(uid int) bool) *frozen {
	if wanted == nil {
		wanted = func(int) bool { return true }
	}
	f, c := &frozen{}, &collector{rank: rank{to: s.now}}
	failed, asked := s.failures.newest(), newest(s.failures.asked)
	for i := range failed {
		c.failure(&failed[i], &asked[i])
	}
	c.marks(s.marks, wanted)
	for _, id := range sortedKeys(s.chips) {
		c.peaks(0, id, &s.chips[id].used, s.chips[id].peaks(), s.now)
	}
	for i := range s.exited {
		if x := &s.exited[i]; wanted(x.view.UID) {
			c.exited(x)
		}
	}
	for _, p := range s.byPID() {
		if wanted(p.about.UID) {
			f.running = append(f.running, c.running(p, s.now))
		}
	}
	c.next(s.now, s.now)
	for _, id := range sortedKeys(s.chips) {
		chip := s.chips[id]
		c.describe(id, chip.board, chip.arch, chip.capacities)
	}
	for _, cause := range sortedKeys(s.lost) {
		c.count(event.Lost, 0, cause, s.lost[cause])
	}
	for _, name := range totals {
		c.count(event.Total, 0, name, *s.total(name))
	}
	f.few = c.moments
	return f
}

// running lists what a process has that runs: what is few, and the rest for later.
func (c *collector) running(p *process, now uint64) frozenProcess {
	c.next(p.since, now)
	c.start(&Process{PID: p.pid, Comm: p.comm, SinceNs: p.since, About: p.about})
	for _, address := range sortedKeys(p.allocators) {
		c.allocator(p.pid, address, p.allocators[address])
	}
	for _, id := range sortedKeys(p.chips) {
		c.peaks(p.pid, id, &p.chips[id].used, p.chips[id].peaks, now)
		c.closed(p.pid, id, p.chips[id])
	}
	f := frozenProcess{
		rank: c.rank, pid: p.pid, beforeAttach: p.beforeAttach, programs: p.frozenPrograms(),
		left: process{left: copied(p.left), holders: copied(p.holders)},
	}
	f.buffers = make([]*buffer, 0, p.buffers.len)
	for b := range p.buffers.all() {
		f.buffers = append(f.buffers, b)
	}
	return f
}

func (p *process) frozenPrograms() []frozenProgram {
	var list []frozenProgram
	for device, c := range p.chips {
		for id, g := range c.programs {
			for _, entry := range g.static {
				list = append(list, frozenProgram{device: device, id: id, static: entry})
			}
			if g.kernel != nil {
				list = append(list, frozenProgram{device: device, id: id, kernel: g.kernel})
			}
		}
	}
	return list
}

// copied is the map with copies of what it has.
func copied[K comparable](m map[K]*holder) map[K]*holder {
	c := make(map[K]*holder, len(m))
	for k, h := range m {
		same := *h
		c[k] = &same
	}
	return c
}

// inOrder are all moments in order.
func (f *frozen) inOrder() []moment {
	n := len(f.few)
	for i := range f.running {
		n += len(f.running[i].buffers) + len(f.running[i].programs) + maxHolders
	}
	c := &collector{moments: append(make([]moment, 0, n), f.few...)}
	for i := range f.running {
		c.rest(&f.running[i])
	}
	slices.SortFunc(c.moments, compareMoments)
	return c.moments
}

// rest lists what the process has many of.
func (c *collector) rest(p *frozenProcess) {
	c.rank = p.rank
	c.programs(p)
	c.step++
	for _, b := range p.buffers {
		c.among(b.since, b.id, b)
	}
	c.left(p.pid, p.left.leftShares(maxHolders))
	c.count(event.Total, p.pid, totalBeforeAttach, p.beforeAttach)
}

// programs tells of circular buffers and kernels, each with all the chips that it
// came with and is still on.
func (c *collector) programs(p *frozenProcess) {
	slices.SortStableFunc(p.programs, func(a, b frozenProgram) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.id, b.id))
	})
	c.step++
	known := make(map[*origin]*programMoment)
	for _, g := range p.programs {
		from := g.from()
		m := known[from]
		if m == nil {
			m = &programMoment{frozenProgram: g, pid: p.pid}
			known[from] = m
			c.among(from.since, uint64(len(known)), m)
		}
		m.devices = append(m.devices, g.device)
	}
}

// from is the event that it came with.
func (g *frozenProgram) from() *origin {
	if g.kernel != nil {
		return g.kernel.from
	}
	return g.static.from
}

// A programMoment tells of a circular buffer or of kernels on all their chips.
type programMoment struct {
	frozenProgram
	pid     int
	devices []int
}

func (m *programMoment) tell(e *event.Event) {
	from := m.from()
	e.PID, e.TID, e.Comm, e.Stack, e.BeforeAttach = m.pid, from.tid, from.comm, from.stack, from.beforeAttach
	e.Devices, e.ProgramID = m.devices, m.id
	if k := m.kernel; k != nil {
		e.Kind, e.Region, e.SizeBytes, e.BytesPerBank = event.KernelLoad, event.Kernel, k.dram, k.text
		return
	}
	at := m.static.place
	e.Kind, e.Region, e.StaticKind, e.Global = event.CBAlloc, event.CB, m.static.kind, m.static.global
	e.Cores, e.Address, e.SizeBytes = at.Set.Ranges(), at.Start, at.BytesPerCore()
}

// tell makes the Alloc of the buffer.
func (b *buffer) tell(e *event.Event) {
	e.Kind, e.PID, e.TID, e.Comm, e.Stack = event.Alloc, b.set.process.pid, int(b.tid), b.comm, b.stack
	e.Devices, e.Region, e.Layout, e.BeforeAttach = b.set.ids, b.region, b.layout, b.before
	e.BufferID, e.Object, e.Allocator, e.Address = b.id, b.object, b.allocator, b.address
	e.SizeBytes, e.PageSizeBytes, e.BytesPerBank, e.Banks = b.size, b.pageSize, b.perBank, b.banks
}
