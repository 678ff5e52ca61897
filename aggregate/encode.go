package aggregate

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// stateVersion is the first byte of an encoded State.
const stateVersion = 23

// maxSets is the number of sets of chips of a checkpoint, each with its chips if its process runs.
const maxSets = 4 * maxAllLinks

// A stateCodec writes or reads a State. Totals that follow from the buffers and the programs,
// such as the use of a chip, are not written: reading adds them up.
type stateCodec struct {
	*codec.Codec
	state    *State
	names    codec.Once[processName]
	sets     codec.Once[deviceSet]
	coreSets codec.Once[cores.Set]
	origins  codec.Once[origin]
	arenas   codec.Once[arena]
	sites    codec.Once[callSite]
	ran      codec.Once[memory.Operation]
	// reading is the process whose buffers or programs are read, links counts sets of chips, and allocations what rooms
	// count.
	reading            *process
	links, allocations int
	// last is the latest buffer of each site: the next one is similar. A site is of one process.
	last []buffer
}

// hold counts allocations of the process that is read. A state never has more than there is room for.
func (c *stateCodec) hold(n int) {
	c.reading.kept.allocations += n
	if c.allocations += n; c.allocations > quota.AllAllocations {
		c.Fail()
	}
}

// allButBuffers writes or reads the state without its buffers, and returns the processes whose
// buffers follow.
func (c *stateCodec) allButBuffers(s *State) []*process {
	c.Uints(&s.now, &s.first, &s.applied, &s.freshSince, &s.exited.count, &s.lostEvents)
	c.Bool(&s.restored)
	c.Value(&s.anomalies)
	codec.Table(c.Codec, s.lost, func(cause *string, n *uint64) { c.Text(cause); c.Uint(n) })
	c.Value(&s.beginning.point)
	c.Bool(&s.beginning.over)
	s.marks.Code(c.Codec, func(m *memory.Mark) { c.Value(m) })
	s.ownMarks.Code(c.Codec, func(m *memory.Mark) { c.Value(m) })
	s.failures.Code(c.Codec, c.failure)
	s.overlaps.Code(c.Codec, func(o *memory.Overlap) { c.Value(o) })
	c.Uint(&s.unsafeCount)
	codec.ListUpTo(c.Codec, &s.unsafe, maxUnsafeSites, func(u *memory.Unsafe) { c.Value(u) })
	codec.ListUpTo(c.Codec, &s.afterFree, maxUnsafeSites, func(a *memory.AfterFree) { c.Value(a) })
	s.operationFailures.Code(c.Codec, c.failure)
	s.exited.code(c.Codec)
	s.unplaced.pools.Code(c.Codec)
	chips := s.byID()
	codec.List(c.Codec, &chips, c.chip)
	processes := s.byPID()
	codec.List(c.Codec, &processes, c.process)
	codec.List(c.Codec, &s.sites, c.site)
	if c.Reads {
		s.sites = slices.DeleteFunc(s.sites, func(first *callSite) bool { return first == nil })
	}
	codec.Number(c.Codec, &s.keptSites)
	s.operations.code(c)
	s.survivors.code(c)
	s.temporaries.code(c)
	for _, p := range processes {
		c.reading = p
		c.programs(p)
		p.owners.code(c.Codec)
		c.uses(p)
	}
	for _, one := range chips {
		one.pools.CodeParts(c.Codec)
	}
	s.held.code(c)
	return processes
}

func (c *stateCodec) failure(f *memory.Failure) {
	c.Value(f)
	if f.Evidence != nil {
		c.checkBanked(f.Evidence.Region)
	}
}

// checkBanked checks that a region that was read has banks.
func (c *stateCodec) checkBanked(region event.Region) {
	if int(region) >= event.BankedRegions {
		c.Fail()
	}
}

func (c *stateCodec) chip(p **chip) {
	var id int
	if !c.Reads {
		id = (*p).id
	}
	if codec.Number(c.Codec, &id); c.Reads {
		*p = newChip(id, 0, c.state.ran)
		if c.state.chips[id] != nil || len(c.state.chips) == maxChips {
			c.Fail()
			return
		}
		c.state.chips[id] = *p
	}
	one := *p
	c.Text(&one.board)
	c.Text(&one.arch)
	c.Value(&one.capacities)
	c.Bool(&one.partial)
	c.Uint(&one.changes)
	c.Bool(&one.covers.several)
	for i := range one.failures {
		c.Uint(&one.failures[i])
	}
	codec.List(c.Codec, &one.users, func(uid *int) { codec.Number(c.Codec, uid) })
	one.pools.Code(c.Codec)
}

// process writes or reads a running process without its programs and buffers.
func (c *stateCodec) process(pp **process) {
	p := *pp
	if c.Reads {
		p = newProcess(c.state, 0)
		*pp = p
	}
	codec.Number(c.Codec, &p.pid)
	c.names.One(c.Codec, &p.name, c.name)
	if c.Reads {
		if c.state.processes[p.pid] != nil || p.name.pid != p.pid {
			c.Fail()
			return
		}
		c.state.processes[p.pid] = p
	}
	c.Uints(&p.since, &p.beforeAttach)
	c.Bool(&p.early)
	c.Bool(&p.fromBegin)
	c.Bool(&p.reports)
	c.Bool(&p.captures)
	c.Uint(&p.compiled)
	c.Value(&p.losses)
	p.host.Code(c.Codec)
	for _, reason := range []event.Reason{event.ReasonDeviceClose, event.ReasonProcessExit} {
		for region := range p.totals[reason] {
			t := &p.totals[reason][region]
			c.Uints(&t.Count, &t.Bytes, &t.Size)
		}
	}
	codec.List(c.Codec, &p.sets, func(d **deviceSet) { c.set(d, p.name) })
	codec.List(c.Codec, &p.traces, func(t **trace) { c.trace(t, p) })
	c.newcomers(p)
	codec.Table(c.Codec, p.allocators, func(address *uint64, a **allocator) {
		if c.Uint(address); c.Reads && len(p.allocators) == maxAllocators {
			c.Fail()
		}
		c.set(&codec.Made(c.Codec, a).set, p.name)
		c.Value(&(*a).capacities)
		c.Uint(&(*a).subDevices)
	})
	codec.Table(c.Codec, p.chips, func(id *int, one **processChip) {
		codec.Number(c.Codec, id)
		if c.Reads {
			if *one = p.chips[*id]; *one == nil { // it is in one of the sets
				c.Fail()
				return
			}
		}
		c.processChip(*one, p)
	})
}

func (c *stateCodec) name(p **processName) {
	n := codec.Made(c.Codec, p)
	codec.Number(c.Codec, &n.pid)
	c.Text(&n.comm)
	c.Value(&n.about)
	n.run.Code(c.Codec)
}

func (c *stateCodec) processChip(one *processChip, p *process) {
	c.Value(&one.own)
	c.Bool(&one.covers.several)
	for i := range one.peaks {
		one.peaks[i].Code(c.Codec)
	}
	if c.Bool(&one.open); c.Reads {
		one.countCapacities(1)
	}
	there := one.alone != nil
	if c.Bool(&there); there {
		c.set(&one.alone, p.name)
		if c.Reads && !slices.Equal(one.alone.chips, []*processChip{one}) {
			c.Fail()
		}
	}
}
