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
	// process. FreedAtTeardown is what was freed between the last allocation and that; it is
	// not in Amount.
	Amount
	FreedAtTeardown Amount
	// AgeNs is the age of the oldest, or what it was when that ended.
	AgeNs uint64
	// Allocated is how many the site allocated in all.
	Allocated uint64
	// WorkedFromNs and WorkedToNs are when its process first and last allocated a buffer.
	WorkedFromNs, WorkedToNs uint64
	// Run is when they were allocated. Where the device was closed several times it is of
	// the run between two of these that left most.
	Run Run

	site survivorKey
}

// Key returns the key of the call site.
func (v *Survivors) Key() SiteKey {
	s := Site{PID: v.PID, Stack: v.Stack, Region: v.Region, Layout: v.Layout, Devices: v.Devices}
	return s.Key()
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
	// FreedMeanwhile is how many buffers the process freed between First and Last.
	FreedMeanwhile uint64
	// Replaceable is how many buffers of before the attach were freed on the same chips
	// and in the same region: survivors may have taken their place.
	Replaceable uint64
}

// Total returns the number of survivors in Births.
func (r *Run) Total() (n uint64) {
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
	open               bool
	// freedLast are the buffers that were freed since the latest allocation, if between
	// needs them.
	freedLast []endedBuffer
}

// A siteRun is the part of a call site in it. A site has one allocator, and its run ends when
// that is closed.
type siteRun struct {
	open             bool
	first, last, gap uint64
	// frees is how many buffers the process had freed by first and by last.
	frees [2]uint64
	// births are those of what is live.
	births births
	// freed is what is known of the buffers that were freed; nil if none was.
	freed *freedRun
}

// A freedRun is what is known of the buffers that a site had.
type freedRun struct {
	// freedTo is the newest of the buffers that were freed while work went on, and freedAt
	// the latest allocation of the process by then.
	freedTo, freedAt uint64
	// at is the number of the latest allocation of the process when it lost the others:
	// births are theirs. ended are those that ended with their device, and freedAtTeardown
	// those that were freed; newest is the newest of these, and lastID the ID of the latest
	// allocation then.
	at                     uint64
	births                 births
	ended, freedAtTeardown Amount
	newest, lastID         uint64
	any                    bool // that were freed
}

// births counts buffers by when they were allocated, in up to birthParts parts of equal
// length. Where these are full, two become one.
type births struct {
	shift uint8
	parts [birthParts]uint32
}

const birthParts = 32

// reach makes room for a birth so long after the first.
func (s *births) reach(after uint64) {
	for after>>s.shift >= birthParts {
		for i := range birthParts / 2 {
			s.parts[i] = s.parts[2*i] + s.parts[2*i+1]
		}
		clear(s.parts[birthParts/2:])
		s.shift++
	}
}

// part is where the births of a buffer of the site are counted; nil: how it came to be
// there is not known.
func (s *births) part(c *callSite, id uint64) *uint32 {
	if id < c.run.first {
		return nil
	}
	return &s.parts[min((id-c.run.first)>>s.shift, birthParts-1)]
}

// noteAlloc notes that a buffer was allocated.
func (p *process) noteAlloc(b *buffer) {
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
	run.freedLast = run.freedLast[:0]
	if r.open {
		r.gap = max(r.gap, b.id-min(b.id, r.last))
	} else {
		r.open, r.first, r.frees[0] = true, b.id, run.frees
	}
	r.last, r.frees[1] = max(r.last, b.id), run.frees
	r.births.reach(b.id - min(b.id, r.first))
	if part := r.births.part(b.callSite, b.id); part != nil {
		*part++
	}
}

// noteFree notes that a buffer, which is still counted as live, ends.
func (p *process) noteFree(b *buffer, reason event.Reason) {
	run, c := &p.name.run, b.callSite
	if c.run.freed == nil {
		c.run.freed = &freedRun{}
	}
	r := c.run.freed
	if r.at != run.allocations {
		r.settle()
		r.at, r.births.shift = run.allocations, c.run.births.shift
	}
	if from := c.run.births.part(c, b.id); from != nil && *from > 0 {
		*from--
		*r.births.part(c, b.id)++
	}
	one := Amount{1, b.bytes()}
	if isEnd(reason) {
		r.ended.Add(one)
		return
	}
	r.freedAtTeardown.Add(one)
	r.any, r.newest, r.lastID = true, max(r.newest, b.id), run.last
	run.frees++
}

// settle counts what ended before the latest allocation as freed while work went on.
func (r *freedRun) settle() {
	if r.any {
		r.freedTo, r.freedAt = max(r.freedTo, r.newest), r.lastID
	}
	*r = freedRun{freedTo: r.freedTo, freedAt: r.freedAt}
}

// current reports whether a site lost buffers since the latest allocation of its process.
func (c *callSite) current() bool {
	r := c.run.freed
	return r != nil && r.freedAtTeardown.Count+r.ended.Count > 0 && r.at == c.set.process.run.allocations
}

// named returns survivors with only the fields that identify the site.
func (c *callSite) named() Survivors {
	process := c.set.process
	v := Survivors{
		PID: process.pid, Comm: process.comm, Command: process.about.Command,
		Stack: c.stack, Region: c.region, Layout: c.layout, Devices: slices.Clip(c.set.ids),
		Allocated: c.allocated.Count, WorkedFromNs: process.run.fromNs, WorkedToNs: process.run.toNs,
	}
	v.site = survivorKey{process, v.Key()}
	return v
}

// surviving returns how much survives of a site whose allocator is closed now, and what of it
// was freed since the latest allocation of its process.
func (c *callSite) surviving() (total, freedAtTeardown Amount) {
	total = Amount{c.live.Count, c.live.Bytes * uint64(max(1, len(c.set.chips)))}
	if c.current() {
		total.Add(c.run.freed.ended)
		freedAtTeardown = c.run.freed.freedAtTeardown
	}
	return total, freedAtTeardown
}

// survivors returns those of a site now. What was freed since the latest allocation of its
// process is among them only if its allocator is closed now.
func (c *callSite) survivors(now uint64, closed bool) Survivors {
	v := c.named()
	v.Amount = Amount{c.live.Count, c.live.Bytes * uint64(max(1, len(c.set.chips)))}
	var freed freedRun
	if c.run.freed != nil {
		if freed = *c.run.freed; !c.current() {
			freed.settle()
		}
	}
	all := c.run.births
	if closed && c.current() {
		v.Amount, v.FreedAtTeardown = c.surviving()
		for i, n := range freed.births.parts {
			all.parts[i] += n
		}
	}
	if v.Count+v.FreedAtTeardown.Count > 0 {
		v.AgeNs = now - min(now, c.since)
	}
	process := &c.set.process.run
	v.Run = Run{
		First: c.run.first, Last: c.run.last, Gap: max(c.run.gap, 1),
		ProcessFirst: process.first, ProcessLast: process.last,
		FreedAt: freed.freedAt, FreedMeanwhile: c.run.frees[1] - c.run.frees[0],
	}
	length := max(process.last-min(process.last, c.run.first)+1, 1) // IDs may be of any size
	for i, n := range all.parts {
		at := uint64(i) << all.shift
		v.Run.Births[min(at*BirthWindows/length, BirthWindows-1)] += uint64(n)
		if freed.freedTo >= c.run.first && uint64(i) < (freed.freedTo-c.run.first)>>all.shift {
			v.Run.Outlived += uint64(n)
		}
	}
	return v
}

// maxSurvivors is the number of call sites of closed allocators that a State tells apart.
const maxSurvivors = 4096

// endRun saves the survivors of the call sites on a set of chips: those of an arena that is
// closed, or all if only is nil. It must be called before their buffers are removed. Of many
// call sites it saves those with the most survivors, and adds up the others. It resolves the
// stacks that it saves: an unresolved stack refers to all that is known of the process's code.
func (s *State) endRun(set *deviceSet, only *arena) {
	ended := make([]rankedSite, 0, len(set.sites))
	for _, first := range set.sites {
		for c := range first.all() {
			if c.run.open && (only == nil || c.arena == only) {
				total, teardown := c.surviving()
				total.Add(teardown)
				ended = append(ended, rankedSite{c, total.Count, total.Bytes, c.stackID})
			}
		}
	}
	mostFirst(ended, maxSurvivors)
	replaceable := s.replaceable(set)
	for i, one := range ended {
		switch c := one.callSite; {
		case one.first == 0:
		case i >= maxSurvivors:
			total, _ := c.surviving()
			s.otherSurvivors.Add(total)
		default:
			v := c.survivors(s.now, true)
			v.Run.Replaceable = replaceable[c.region]
			c.stack.Calls()
			s.endedSurvivors = append(s.endedSurvivors, &v)
		}
		one.run = siteRun{}
	}
	if len(s.endedSurvivors) < 2*maxSurvivors {
		return
	}
	slices.SortStableFunc(s.endedSurvivors, func(a, b *Survivors) int {
		return cmp.Or(cmp.Compare(b.Run.Total(), a.Run.Total()), cmp.Compare(b.Bytes, a.Bytes))
	})
	for _, v := range s.endedSurvivors[maxSurvivors:] {
		s.otherSurvivors.Add(v.Amount)
	}
	s.endedSurvivors = slices.Delete(s.endedSurvivors, maxSurvivors, len(s.endedSurvivors))
}

// Survivors are those of all call sites that have any, in no order; of processes that
// ended or closed their device, those that left most. Others is what the rest of these left.
// The cost is that of the call sites.
func (s *State) Survivors() (list []Survivors, others Amount) {
	for _, v := range s.endedSurvivors {
		list = append(list, *v)
	}
	replaceable := make(map[*deviceSet]map[event.Region]uint64)
	for _, first := range s.sites {
		for c := range first.all() {
			if !c.run.open || c.live.Count == 0 {
				continue
			}
			v := c.survivors(s.now, false)
			if replaceable[c.set] == nil {
				replaceable[c.set] = s.replaceable(c.set)
			}
			v.Run.Replaceable = replaceable[c.set][c.region]
			list = append(list, v)
		}
	}
	return mergeSurvivors(list), s.otherSurvivors
}

// replaceable is how many buffers of before the attach were freed on these chips, by region.
func (s *State) replaceable(set *deviceSet) map[event.Region]uint64 {
	freed := make(map[event.Region]uint64)
	for _, first := range set.sites {
		for c := range first.all() {
			if c.before {
				freed[c.region] += c.allocated.Count - c.live.Count - c.ended.Count
			}
		}
	}
	return freed
}

// BuffersAllocated is how many buffers were allocated in all, without those of before the
// attach.
func (s *State) BuffersAllocated() uint64 { return s.allocations }

// A survivorKey tells call sites apart, also after their process ended, whatever allocator
// they had.
type survivorKey struct {
	process *processName
	SiteKey
}

// mergeSurvivors makes one of those of each call site.
func mergeSurvivors(list []Survivors) (merged []Survivors) {
	index := make(map[survivorKey]int)
	for _, v := range list {
		i, ok := index[v.site]
		if !ok {
			index[v.site] = len(merged)
			merged = append(merged, v)
			continue
		}
		one := &merged[i]
		one.Amount.Add(v.Amount)
		one.FreedAtTeardown.Add(v.FreedAtTeardown)
		one.AgeNs, one.Allocated = max(one.AgeNs, v.AgeNs), max(one.Allocated, v.Allocated)
		if v.Run.Total() > one.Run.Total() {
			one.Run = v.Run
		}
	}
	return merged
}
