package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// The survivors of a call site are its buffers that were live at the latest allocation of
// their process: what is freed afterwards, by a teardown of the program or by the end of
// its device or process, was live for as long as there was work. When they were allocated
// says whether the site leaks.
//
// The library numbers the buffers of a process in the order in which they are made. These
// IDs are the clock: it goes on only while a program works.

// BirthWindows is how many windows of equal length the run of a site has, in each of which
// the births of its survivors are counted.
const BirthWindows = 8

// Survivors are those of one call site.
type Survivors struct {
	PID           int
	Comm, Command string
	Stack         *event.Stack // nil where that is not known
	Region        event.Region
	Layout        event.Layout
	// Devices are the chips that each is on. They must not be modified.
	Devices []int
	// Amount has the bytes on all chips. It is what is live, or ended with its device or
	// process. Torn is what was freed between the last allocation and that, and is not in Amount.
	Amount
	Torn Amount
	// AgeNs is the age of the oldest, or what it was when that ended.
	AgeNs uint64
	// Allocated is how many the site allocated in all.
	Allocated uint64
	// WorkedFromNs and WorkedToNs are when its process first and last allocated a buffer.
	WorkedFromNs, WorkedToNs uint64
	// Run is when they were allocated. Where the device was closed several times it is of
	// the run between two of these that left most.
	Run Run
}

// A Run is what is known of the survivors of a site while the device was open. First, Last
// and so on are IDs of buffers.
type Run struct {
	// Births counts survivors by when they were allocated. The windows go from the first
	// allocation of the site to the last of its process.
	Births [BirthWindows]uint64
	// First and Last are the first and the last allocation of the site, and Gap is the
	// longest way from one to the next.
	First, Last, Gap uint64
	// ProcessFirst and ProcessLast are the first and the last allocation of the process.
	ProcessFirst, ProcessLast uint64
	// FreedAt is the last allocation of the process before the site last freed a buffer; 0:
	// it freed none. Outlived is how many survivors are older than one that it freed.
	FreedAt, Outlived uint64
	// Meanwhile is how many buffers the process freed between First and Last.
	Meanwhile uint64
	// Replaceable is how many buffers of before the attach were freed on the same chips
	// and in the same region: survivors may have taken their place.
	Replaceable uint64
}

// Born is how many survivors are in Births.
func (r *Run) Born() (n uint64) {
	for _, births := range r.Births {
		n += births
	}
	return n
}

// A processRun is what a process has allocated while its devices were open.
type processRun struct {
	// first and last are the IDs of its first and latest allocation; none of them is of
	// before the attach.
	first, last uint64
	// fromNs and toNs are when the first and the latest of all were.
	fromNs, toNs uint64
	// allocations and frees are how many there were, also before.
	allocations, frees uint64
	// joined is the last allocation of which only the survivors are known: 0 where all
	// events were seen. What happens afterwards is judged.
	joined uint64
	open   bool
	// parted are the sites that lost buffers since the latest allocation.
	parted []*callSite
	// torn are the buffers that were freed since then, where between asks for it.
	torn []endedBuffer
}

// A siteRun is the part of a call site in it.
type siteRun struct {
	open             bool
	first, last, gap uint64
	// frees is how many buffers the process had freed by first and by last.
	frees [2]uint64
	// ended is what is known of buffers that are not live any more; nil: none are.
	ended *endedRun
}

// An endedRun is what a site had that is not live any more.
type endedRun struct {
	// freedTo is the newest of the buffers that were freed while work went on, and freedAt
	// the latest allocation of the process by then.
	freedTo, freedAt uint64
	// parted is what was lost since the latest allocation of the process, if that is still
	// the one of the number partedAt.
	parted   births
	partedAt uint64
	// past is the run that left most of those that the closing of a device ended, and
	// pastSum what all of these left.
	past    Run
	pastSum births
}

// births sums up survivors.
type births struct {
	Amount          // with the bytes on all chips
	torn     Amount // what was freed, which is not in Amount
	windows  [BirthWindows]uint32
	outlived uint32
	age      uint64 // of the oldest, or what it was when that ended
	freed    uint64 // the ID of the newest that was freed; 0: none was
	lastID   uint64 // the latest allocation of the process
}

// join says that of what was allocated up to now only the survivors are known.
func (s *State) join() {
	for _, p := range s.processes {
		p.name.run.joined = p.name.run.last
	}
}

// bear notes that a buffer was allocated.
func (p *process) bear(b *buffer) {
	run, r := &p.name.run, &b.run
	if !run.open {
		run.open, run.first = true, b.id
	}
	if run.allocations == 0 {
		run.fromNs = b.since
	}
	run.toNs = b.since
	run.allocations++
	run.last = max(run.last, b.id)
	run.parted, run.torn = run.parted[:0], run.torn[:0]
	if r.open {
		r.gap = max(r.gap, b.id-min(b.id, r.last))
	} else {
		*r = siteRun{open: true, first: b.id, ended: r.ended}
		r.frees[0] = run.frees
		if r.ended != nil {
			r.ended.freedTo, r.ended.freedAt = 0, 0
		}
	}
	r.last, r.frees[1] = max(r.last, b.id), run.frees
}

// part notes that a buffer, which is still counted as live, ends.
func (p *process) part(b *buffer, reason event.Reason, now uint64) {
	run := &p.name.run
	if b.run.ended == nil {
		b.run.ended = &endedRun{}
	}
	r := b.run.ended
	if r.partedAt != run.allocations || r.parted.count() == 0 {
		r.settle()
		r.partedAt = run.allocations
		run.parted = append(run.parted, b.callSite)
	}
	r.parted.add(b, now)
	one := Amount{1, b.bytes()}
	if isEnd(reason) {
		r.parted.Amount.add(one)
		return
	}
	r.parted.torn.add(one)
	r.parted.freed, r.parted.lastID = max(r.parted.freed, b.id), run.last
	run.frees++
}

// settle counts what parted before the latest allocation as freed while work went on.
func (r *endedRun) settle() {
	if r.parted.freed > 0 {
		r.freedTo, r.freedAt = max(r.freedTo, r.parted.freed), r.parted.lastID
	}
	r.parted = births{}
}

// current reports whether the parted buffers of a site were live at the latest allocation.
func (c *callSite) current() bool {
	r := c.run.ended
	return r != nil && r.parted.count() > 0 && r.partedAt == c.process.run.allocations
}

// endedNow is what a site had, with what parted before the latest allocation settled.
func (c *callSite) endedNow() endedRun {
	var r endedRun
	if c.run.ended != nil {
		if r = *c.run.ended; !c.current() {
			r.settle()
		}
	}
	return r
}

// runStart is where the windows of a site begin.
func (c *callSite) runStart() uint64 { return max(c.run.first, c.process.run.joined+1) }

// count is how many there are.
func (s *births) count() uint64 { return s.Count + s.torn.Count }

// add notes when a survivor was allocated. The site has to be settled.
func (s *births) add(b *buffer, now uint64) {
	s.age = max(s.age, now-min(now, b.since))
	start := b.runStart()
	if b.id < start {
		return // how it came to be there is not known
	}
	length := b.process.run.last - start + 1
	s.windows[min((b.id-start)*BirthWindows/length, BirthWindows-1)]++
	if b.run.ended != nil && b.id < b.run.ended.freedTo {
		s.outlived++
	}
}

// sum adds up two parts of the survivors of a site.
func (s *births) sum(other *births) {
	if other.count() == 0 {
		return
	}
	s.Amount.add(other.Amount)
	s.torn.add(other.torn)
	for i, n := range other.windows {
		s.windows[i] += n
	}
	s.outlived += other.outlived
	s.age = max(s.age, other.age)
}

// runOf is what is known of these survivors.
func (c *callSite) runOf(s *births, ended *endedRun) Run {
	process := &c.process.run
	run := Run{
		First: c.runStart(), Last: c.run.last, Gap: max(c.run.gap, 1),
		ProcessFirst: max(process.first, process.joined+1), ProcessLast: process.last,
		FreedAt: ended.freedAt, Outlived: uint64(s.outlived), Meanwhile: c.run.frees[1] - c.run.frees[0],
	}
	for i, n := range s.windows {
		run.Births[i] = uint64(n)
	}
	return run
}

// endRun is called when a device was closed or the process ends. What has parted since the
// latest allocation stays known, whatever is allocated afterwards. The cost is that of the
// sites that lost buffers.
func (p *process) endRun() {
	for _, c := range p.name.run.parted {
		if !c.current() {
			continue // it was forgotten
		}
		r := c.run.ended
		if run := c.runOf(&r.parted, r); run.Born() > r.past.Born() || r.pastSum.count() == 0 {
			r.past = run
		}
		r.pastSum.sum(&r.parted)
		r.parted = births{}
		c.run.open = c.live.Count > 0
	}
	p.name.run.parted = nil
	p.name.run.open = p.buffers.len > 0
}

// named are survivors of a site of which nothing else is known yet.
func (c *callSite) named() Survivors {
	return Survivors{
		PID: c.process.pid, Comm: c.process.comm, Command: c.process.command,
		Stack: c.stack, Region: c.region, Layout: c.layout, Devices: slices.Clip(c.set.ids),
		Allocated: c.allocated.Count, WorkedFromNs: c.process.run.fromNs, WorkedToNs: c.process.run.toNs,
	}
}

// survivors are those of a site, with what is live of them. What parted since the latest
// allocation is free, as long as its process goes on.
func (c *callSite) survivors(live *births) Survivors {
	r := c.endedNow()
	all := *live
	all.sum(&r.pastSum)
	v := c.named()
	v.Amount, v.Torn, v.AgeNs, v.Run = all.Amount, all.torn, all.age, r.past
	if run := c.runOf(live, &r); run.Born() > r.past.Born() || r.pastSum.count() == 0 {
		v.Run = run
	}
	return v
}

// Survivors are those of all call sites that have any, in no order; of processes that
// ended, those that left most. Others is what the rest of these left. The cost is that of
// the live buffers.
func (s *State) Survivors() (list []Survivors, others Amount) {
	list = slices.Clone(s.survived)
	live := make(map[*callSite]*births)
	for _, p := range s.processes {
		var site *callSite
		var sum *births
		for b := range p.buffers.all() {
			if b.before {
				continue
			}
			if b.callSite != site {
				site, sum = b.callSite, live[b.callSite]
				if sum == nil {
					if site.run.ended != nil && !site.current() {
						site.run.ended.settle()
					}
					sum = &births{}
					live[site] = sum
				}
			}
			sum.add(b, s.now)
			sum.Amount.add(Amount{1, b.bytes()})
		}
	}
	replaceable := s.replaceable()
	for _, c := range s.sites {
		if c.before {
			continue
		}
		sum := live[c]
		if sum == nil {
			sum = &births{}
		}
		if v := c.survivors(sum); v.Count+v.Torn.Count > 0 {
			v.Run.Replaceable = replaceable[place{c.set, c.region}]
			list = append(list, v)
		}
	}
	return list, s.otherSurvivors
}

// A place is a region of the chips of a mesh or a device.
type place struct {
	set    *deviceSet
	region event.Region
}

// replaceable is how many buffers of before the attach were freed.
func (s *State) replaceable() map[place]uint64 {
	freed := make(map[place]uint64)
	for _, c := range s.sites {
		if c.before {
			freed[place{c.set, c.region}] += c.allocated.Count - c.live.Count - c.ended.Count
		}
	}
	return freed
}

// BuffersAllocated is how many buffers were allocated in all, without those of before the
// attach.
func (s *State) BuffersAllocated() uint64 { return s.born }

// keptSurvivors is how many call sites of processes that ended are told apart.
const keptSurvivors = 4096

// keepSurvivors keeps what a site leaves that is about to be forgotten, or whose process
// ended. It looks up the names: a stack that is not looked up holds on to all that is known
// of the process's code.
func (s *State) keepSurvivors(c *callSite, replaceable uint64) {
	if c.run.ended == nil || c.run.ended.pastSum.count() == 0 {
		return
	}
	v := c.survivors(&births{})
	v.Run.Replaceable = replaceable
	c.run = siteRun{}
	c.stack.Calls()
	s.survived = append(s.survived, v)
	if len(s.survived) < 2*keptSurvivors {
		return
	}
	slices.SortStableFunc(s.survived, func(a, b Survivors) int {
		return cmp.Or(cmp.Compare(b.Run.Born(), a.Run.Born()), cmp.Compare(b.Bytes, a.Bytes))
	})
	for i := keptSurvivors; i < len(s.survived); i++ {
		s.otherSurvivors.add(s.survived[i].Amount)
	}
	s.survived = slices.Clip(slices.Delete(s.survived, keptSurvivors, len(s.survived)))
}
