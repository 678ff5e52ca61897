package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// Growth follows what each call stack has allocated and not given back: between two
// marks, and over the time of the process. It needs no State, and not the events that
// others imply: what ends with its device or its process was never given back.
// It is not safe for use by several goroutines at once.
type Growth struct {
	o GrowthOptions
	// first and now are the times of the first and the latest event.
	first, now uint64
	// allocated is how many buffers were allocated in all.
	allocated uint64
	processes map[int]*growthProcess
	// last is the process of the latest event, as most come in runs.
	last *growthProcess
	// sites are those of all processes, also of those that ended, as far as something
	// of them was left.
	sites []*growthSite
	// keptSites is how many there were after the last look for some to forget, and
	// others what those had that were forgotten.
	keptSites int
	others    growthOthers
	sets      []*growthSet
	lastSet   *growthSet
	// serial tells processes apart that had one id after the other.
	serial uint32

	// marks are those so far, thinned where they are too many, and placed is how many
	// there were.
	marks  []growthMark
	placed int
	names  []string
	// stepMarks is how many marks of steps were passed over.
	stepMarks int
	// earlierMarks is how many marks of before the beginning were passed over, and begun
	// is true where what there was before is told of.
	earlierMarks int
	begun        bool
	// earlier is true where the mark From lies before the beginning, and over where To
	// does.
	earlier, over bool
	// noted is how many steps all histories had together when some were last forgotten,
	// and what was added since.
	noted int
	// from is the number of the mark that counting begins at, and to of the last one
	// where it may end; 0 where there was none. Marks are numbered from 1.
	from, to int
	// fromSeen and toSeen are how many marks there were with these names.
	fromSeen, toSeen int
	// touched are the sites and processes that changed since the last mark.
	touched          []*growthSite
	touchedProcesses []*growthProcess
	// next is when the next mark of Every is due, 0 before the first allocation.
	next uint64
}

// GrowthOptions say where counting begins and ends.
type GrowthOptions struct {
	// From is the name of the mark from which on is counted: the one of that name
	// that FromNth says, from 1; 0 is the first. "" is the first of all, or the
	// beginning where there is none.
	From    string
	FromNth int
	// To is the name of the mark up to which is counted: the one of that name that
	// ToNth says, from 1; 0 is the last. "" is the last of all where there are two or
	// more, or else the end.
	To    string
	ToNth int
	// Begin and End stand for the beginning and the end, in place of From and To.
	Begin, End bool
	// EveryNs places a mark each so many ns of the events' own time, beginning at the
	// first allocation; 0: none. Counting goes on to the end, without a To.
	EveryNs uint64
	// StackID tells stacks apart; nil: by their IDs. It is asked once for each stack of
	// a process, or now and then.
	StackID func(*event.Stack) uint64
}

// A growthMark is a moment that intervals begin and end at.
type growthMark struct {
	number int
	name   string
	time   uint64
}

// A growthKey tells sites apart.
type growthKey struct {
	process uint32 // its serial
	stack   uint64 // its ID
	set     *growthSet
	region  event.Region
	layout  event.Layout
}

// A growthSet is the chips that a buffer is on.
type growthSet struct{ ids []int }

// A growthSite is what one stack of a process has allocated, in one region of the same
// chips.
type growthSite struct {
	key     growthKey
	process *growthProcess
	stack   *event.Stack
	// next is another one of the same stack and process; nil: there is none.
	next *growthSite
	// allocated is how many there were in all, live what is there now, and ended what
	// was never freed before its device closed or its process ended.
	allocated   uint64
	live, ended Amount
	// endedAge is the greatest age of what ended, in ns.
	endedAge uint64
	// tail is what was freed since the last allocation of the process, which was the
	// one of the number tailAt, and torn what of that was so when its device closed or
	// its process ended: it was there to the end of all work. tailNs and tornNs are
	// when the oldest of it was allocated.
	tail, torn     Amount
	tailAt         uint64
	tailNs, tornNs uint64
	tailLow        uint32 // the least that there was in the window before
	// made is how many it allocated since the trend began.
	made uint64
	// lastAt is when the last was allocated, and gap the longest time from one to the
	// next, on the clock of the trend.
	lastAt, gap uint64
	// churn is how many buffers the process had freed by the first and by the last
	// allocation of the trend.
	churn [2]uint64
	trend trend

	// best is the clearest trend of those before its device closed, and rests is true
	// from then on, until it is open again.
	best  Trend
	rests bool

	// fresh is what of live, and of ended, was allocated after the mark From.
	fresh, freshEnded Amount
	// replaced is what is gone since the mark From that was there then: as much of
	// what is fresh has only taken its place.
	replaced Amount
	// oldGone is when the oldest was allocated that was there at the mark goneAt and
	// is not any more.
	oldGone uint64
	goneAt  int
	// history is what was fresh at marks, where it was not the same at the one before.
	history []growthStep
	touched bool
	gone    bool // it was forgotten
}

// A growthStep is what there was at a mark.
type growthStep struct {
	mark                  int
	live, ended, replaced Amount
}

// A growthProcess is a process that lives or, where it is over, has left something.
type growthProcess struct {
	pid           int
	serial        uint32
	comm, command string
	buffers       growthBuffers
	sites         []*growthSite
	// byStack has the first of the sites of each stack, by its ID.
	byStack map[uint64]*growthSite
	// ids are what GrowthOptions.StackID said of stacks, by the IDs that events have.
	ids map[uint64]uint64
	// allocations and frees are how many there were: the clock of the trends.
	allocations, frees uint64
	// history is the allocations at marks.
	history       []growthStep
	touched, over bool
}

// NewGrowth returns a Growth of nothing.
func NewGrowth(o GrowthOptions) *Growth {
	return &Growth{o: o, processes: make(map[int]*growthProcess)}
}

// Apply counts an event. Events are to come in time order, with or without those that
// they imply. Growth keeps e.Stack and copies the rest.
func (g *Growth) Apply(e *event.Event) {
	if e.Kind == event.Checkpoint && !g.begun {
		g.restore(e)
	}
	if g.first == 0 {
		g.first = e.TimeNs
	}
	g.now = max(g.now, e.TimeNs)
	if g.next != 0 && e.TimeNs >= g.next {
		g.markEvery(e.TimeNs)
	}
	switch e.Kind {
	case event.Alloc:
		g.alloc(e)
	case event.Free:
		g.free(e)
	case event.DeviceClose:
		if p := g.known(e.PID); p != nil {
			p.tear()
			for b := range p.buffers.all() {
				if b.allocator == e.Allocator {
					g.end(p, *b)
				}
			}
		}
	case event.ProcessStart:
		g.endProcess(e.PID)
		p := g.process(e)
		p.comm, p.command = e.Comm, e.Command
	case event.ProcessExit:
		g.endProcess(e.PID)
	case event.Mark:
		if e.BeforeAttach {
			g.markEarlier(e.Cause, e.TimeNs)
		} else {
			g.mark(e.Cause, e.TimeNs)
		}
	}
}

// known is the process of that id, or nil.
func (g *Growth) known(pid int) *growthProcess {
	if g.last == nil || g.last.pid != pid {
		p := g.processes[pid]
		if p == nil {
			return nil
		}
		g.last = p
	}
	return g.last
}

func (g *Growth) process(e *event.Event) *growthProcess {
	p := g.known(e.PID)
	if p == nil {
		g.serial++
		p = &growthProcess{pid: e.PID, serial: g.serial, comm: e.Comm, byStack: make(map[uint64]*growthSite)}
		g.processes[e.PID] = p
	}
	return p
}

func (g *Growth) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		return
	}
	if e.BeforeAttach { // nobody knows how old it is, nor where it is from
		if p := g.known(e.PID); p != nil {
			if old := p.buffers.get(e.BufferID); old != nil {
				g.remove(p, *old) // its free was lost
			}
		}
		return
	}
	if g.o.EveryNs > 0 && g.next == 0 {
		g.next = e.TimeNs + g.o.EveryNs
		g.mark(everyName, e.TimeNs)
	}
	p := g.process(e)
	if old := p.buffers.get(e.BufferID); old != nil {
		g.remove(p, *old) // its free was lost
	}
	s := g.site(p, e)
	b := growthBuffer{
		site: s, id: e.BufferID, since: e.TimeNs, allocator: e.Allocator, placed: uint32(g.placed),
		bytes: e.BytesPerBank * uint64(e.Banks) * uint64(max(1, len(e.Devices))),
	}
	p.buffers.put(b)
	if s.rests {
		s.begin()
	}
	s.lastAt, s.gap = p.allocations, max(s.gap, p.allocations-s.lastAt)
	s.trend.reach(p.allocations, s.live.Count)
	p.allocations++
	g.allocated++
	s.allocated++
	s.made++
	s.churn[1] = p.frees
	one := Amount{1, b.bytes}
	s.live.add(one)
	if g.isFresh(b) {
		s.fresh.add(one)
	}
	g.touch(s)
}

// isFresh reports whether a buffer was allocated after the mark From.
func (g *Growth) isFresh(b growthBuffer) bool {
	if g.from == 0 {
		return g.o.From == "" // as long as there is no mark, from the beginning
	}
	return int(b.placed) >= g.from
}

func (g *Growth) free(e *event.Event) {
	p := g.known(e.PID)
	if p == nil {
		return
	}
	b := p.buffers.get(e.BufferID)
	switch {
	case b == nil:
	case isEnd(e.Reason):
		g.end(p, *b)
	default:
		p.frees++
		g.remove(p, *b)
	}
}

// remove takes off a buffer that was freed.
func (g *Growth) remove(p *growthProcess, b growthBuffer) {
	p.buffers.remove(b.id)
	s, one := b.site, Amount{1, b.bytes}
	s.trend.reach(p.allocations, s.live.Count)
	s.live.sub(one)
	if s.tailAt != p.allocations || s.tail.Count == 0 {
		s.tail, s.tailAt, s.tailNs = Amount{}, p.allocations, b.since
		s.tailLow = s.trend.low[s.trend.at]
	}
	s.trend.fall(s.live.Count)
	if g.isFresh(b) {
		s.fresh.sub(one)
		s.tail.add(one)
		s.tailNs = min(s.tailNs, b.since)
	} else {
		s.replaced.add(one)
	}
	g.left(b)
}

// tear notes what was freed after the last allocation of a process, all of whose work
// is over.
func (p *growthProcess) tear() {
	for _, s := range p.sites {
		if s.tail.Count == 0 || s.tailAt != p.allocations {
			continue
		}
		s.rest(p)
		if s.torn.Count == 0 {
			s.tornNs = s.tailNs
		}
		s.torn.add(s.tail)
		s.tail = Amount{}
	}
}

// end takes off a buffer that the end of its device or its process freed.
func (g *Growth) end(p *growthProcess, b growthBuffer) {
	p.buffers.remove(b.id)
	s, one := b.site, Amount{1, b.bytes}
	s.rest(p)
	s.live.sub(one)
	s.ended.add(one)
	s.endedAge = max(s.endedAge, g.now-min(g.now, b.since))
	if g.isFresh(b) {
		s.fresh.sub(one)
		s.freshEnded.add(one)
	}
	g.left(b)
}

// left notes that a buffer is gone that was there at the mark To.
func (g *Growth) left(b growthBuffer) {
	s := b.site
	g.touch(s)
	if int(b.placed) >= g.to || !g.isFresh(b) {
		return // or there is no such mark
	}
	if s.goneAt != g.to {
		s.goneAt, s.oldGone = g.to, b.since
	}
	s.oldGone = min(s.oldGone, b.since)
}

func (g *Growth) endProcess(pid int) {
	p := g.known(pid)
	if p == nil {
		return
	}
	p.tear()
	for b := range p.buffers.all() {
		g.end(p, *b)
	}
	p.sites, p.byStack, p.ids, p.buffers, p.over = nil, nil, nil, growthBuffers{}, true
	delete(g.processes, pid)
	g.last = nil
}

// restore goes through what was there at a checkpoint, and begins.
func (g *Growth) restore(e *event.Event) {
	s := New()
	if s.Restore(e.State) != nil {
		return
	}
	for _, p := range s.byPID() {
		g.Apply(&event.Event{TimeNs: p.since, Kind: event.ProcessStart, PID: p.pid, Comm: p.comm, Command: p.about.Command})
	}
	marks := s.marks
	held := s.Held()
	slices.SortStableFunc(held, func(a, b Held) int { return cmp.Compare(a.SinceNs, b.SinceNs) })
	for _, h := range held {
		for len(marks) > 0 && marks[0].timeNs < h.SinceNs {
			g.markEarlier(marks[0].name, marks[0].timeNs)
			marks = marks[1:]
		}
		g.Apply(&event.Event{
			TimeNs: h.SinceNs, Kind: event.Alloc, PID: h.PID, TID: h.TID, Comm: h.Comm, Devices: h.Devices, Region: h.Region,
			BufferID: h.BufferID, Allocator: h.Allocator, Address: h.Address, SizeBytes: h.SizeBytes,
			BytesPerBank: h.BytesPerBank, Banks: h.Banks, BeforeAttach: h.BeforeAttach, Stack: h.Stack,
		})
	}
	for _, m := range marks {
		g.markEarlier(m.name, m.timeNs)
	}
	g.begin()
}
