package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// stateVersion is the first byte of an encoded State.
const stateVersion = 2

// Bounds of what is read: damaged input is not to cost more than a State that is large.
const (
	maxStateChips     = 1 << 16 // of all processes together
	maxStateCores     = 1 << 20 // of all sets of cores together
	maxStateCoreSteps = 1 << 23 // of the circular buffers on each of their cores
)

// A stateCodec writes or reads a State. What follows from the buffers and the programs,
// such as what is in use on a chip, is not written: it is added up when they are read.
type stateCodec struct {
	*codec
	state    *State
	names    once[processName]
	sets     once[deviceSet]
	coreSets once[cores.Set]
	origins  once[origin]
	arenas   once[arena]
	sites    once[callSite]
	// chips, cores and coreSteps are how many were read, and placed where.
	chips, cores, coreSteps int
	placed                  map[placedAt]bool
}

// few writes or reads all but what a process may have a million of.
func (c *stateCodec) few(s *State, of *frozen) {
	c.uints(&s.now, &s.first, &s.applied, &s.freshSince, &s.exitedCount)
	c.bool(&s.restored)
	c.uints(&s.anomalies.RepeatedFrees, &s.anomalies.ReplacedBuffers, &s.anomalies.UnplacedBuffers, &s.anomalies.MalformedEvents)
	table(c.codec, s.lost, func(cause *string, n *uint64) { c.text(cause); c.uint(n) })
	c.uints(&s.beginning.point.Number, &s.beginning.point.TimeNs)
	c.bool(&s.beginning.over)
	for _, m := range []*marks{&s.marks, &s.callMarks} {
		c.uint(&m.count)
		list(c.codec, &m.list, c.mark)
	}
	c.uint(&s.failures.count)
	list(c.codec, &s.failures.list, c.failure)
	list(c.codec, &s.exited, c.exited)
	for i := range s.unplaced {
		c.pool(&s.unplaced[i])
	}
	list(c.codec, &of.chips, c.chip)
	list(c.codec, &of.processes, c.process)
	list(c.codec, &s.sites, c.site)
	number(c.codec, &s.keptSites)
	list(c.codec, &s.endedSurvivors, c.survivors)
	c.amount(&s.otherSurvivors)
	c.uint(&s.allocations)
	for i := range of.processes {
		c.programs(of.processes[i])
	}
	for i := range of.chips {
		c.ended(&(*of.chips[i]).pools[event.L1])
	}
}

func (c *stateCodec) mark(m *Mark) {
	c.uints(&m.TimeNs, &m.Number)
	c.text(&m.Name)
	number(c.codec, &m.uid)
}

func (c *stateCodec) failure(f *Failure) {
	c.uints(&f.TimeNs, &f.SizeBytes, &f.BytesPerBank, &f.ProgramID, &f.number)
	number(c.codec, &f.PID)
	number(c.codec, &f.TID)
	number(c.codec, &f.UID)
	number(c.codec, &f.Banks)
	for _, s := range []*string{&f.Comm, &f.Region, &f.Reason, &f.Message} {
		c.text(s)
	}
	c.ids(&f.Devices)
	c.stack(&f.Stack)
	maybe(c.codec, &f.Evidence, c.evidence)
}

// ids are those of chips. They are never nil.
func (c *stateCodec) ids(ids *[]int) {
	list(c.codec, ids, func(id *int) { number(c.codec, id) })
	if *ids == nil {
		*ids = []int{}
	}
}

func (c *stateCodec) evidence(e *Evidence) {
	c.region(&e.Region, event.Region(event.BankedRegions))
	c.capacity(&e.Capacity)
	c.uints(&e.FreeBytesPerBank, &e.LargestFreeBytesPerBank, &e.From, &e.To, &e.Lowest)
	c.blame(&e.Live)
	c.blame(&e.Blocking)
	list(c.codec, &e.Holders, c.blame)
	list(c.codec, &e.Blockers, c.blame)
	list(c.codec, &e.Statics, c.static)
}

func (c *stateCodec) blame(b *Blame) {
	c.uints(&b.BytesPerBank, &b.Count, &b.Address, &b.End)
	c.bool(&b.BeforeAttach)
	c.stack(&b.Stack)
}

func (c *stateCodec) static(s *Static) {
	c.uints(&s.ProgramID, &s.Address, &s.BytesPerCore, &s.SinceNs)
	number(c.codec, &s.PID)
	number(c.codec, &s.Device)
	number(c.codec, &s.Kind)
	c.ranges(&s.Cores)
	c.bool(&s.Global)
	c.bool(&s.BeforeAttach)
	c.stack(&s.Stack)
}

func (c *stateCodec) ranges(l *[]event.CoreRange) {
	list(c.codec, l, func(r *event.CoreRange) {
		for _, n := range []*uint16{&r.X0, &r.Y0, &r.X1, &r.Y1} {
			number(c.codec, n)
		}
	})
}

func (c *stateCodec) capacity(v *event.Capacity) {
	number(c.codec, &v.Banks)
	c.uints(&v.BytesPerBank, &v.Base)
}

func (c *stateCodec) capacities(list *capacities) {
	for i := range list {
		c.capacity(&list[i])
	}
}

// exited is a process that ended, of which there is nothing but its view.
func (c *stateCodec) exited(x *exited) {
	p := &x.view
	number(c.codec, &p.PID)
	c.text(&p.Comm)
	c.about(&p.About)
	c.uints(&p.BeforeAttachBuffers, &p.SinceNs)
	list(c.codec, &p.Devices, c.device)
	if p.Devices == nil {
		p.Devices = []Device{}
	}
	maybe(c.codec, &p.Exit, func(x *Exit) {
		c.uint(&x.TimeNs)
		maybe(c.codec, &x.Status, func(status *int) { number(c.codec, status) })
	})
	list(c.codec, &p.Unfreed, func(l *RegionTotal) {
		c.text(&l.Region)
		c.text(&l.Reason)
		c.uints(&l.Buffers, &l.SizeBytes, &l.AllocatedBytes)
		list(c.codec, &l.Holders, c.holder)
		// of as much, the stacks come in order of their ids, which differ from run to run
		slices.SortStableFunc(l.Holders, func(a, b Holder) int {
			if a.Stack == nil || b.Stack == nil {
				return 0
			}
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stack.ID, b.Stack.ID))
		})
	})
}

func (c *stateCodec) about(a *About) {
	for _, s := range []*string{&a.Command, &a.Library, &a.Release, &a.Container, &a.Pod} {
		c.text(s)
	}
	number(c.codec, &a.UID)
	number(c.codec, &a.ContainerPID)
	c.bool(&a.AttachedLate)
}

func (c *stateCodec) holder(h *Holder) {
	c.uints(&h.Bytes, &h.Count, &h.Stacks)
	c.bool(&h.BeforeAttach)
	c.stack(&h.Stack)
}

// device is a chip of a process that ended: it has no sharers.
func (c *stateCodec) device(d *Device) {
	number(c.codec, &d.ID)
	c.text(&d.Board)
	c.text(&d.Arch)
	for i := range event.Region(event.BankedRegions) {
		r := d.Regions.Banked(i)
		number(c.codec, &r.Banks)
		c.uints(&r.Buffers, &r.SizeBytes, &r.BytesPerBank, &r.AllocatedBytes, &r.CapacityBytes,
			&r.CapacityBytesPerBank, &r.PeakBytes, &r.PeakTimeNs, &r.PeakCapacityBytes)
	}
	u := &d.Regions.CB
	c.uints(&u.Programs, &u.Count, &u.GlobalCount, &u.MaxBytesPerCore, &u.Bytes, &u.SumBytes, &u.PeakBytesPerCore, &u.PeakTimeNs)
	k := &d.Regions.Kernel
	c.uints(&k.Programs, &k.MaxBytesPerCore, &k.SumBytes, &k.PeakBytesPerCore, &k.DRAMBytes, &k.PeakDRAMBytes)
	l := &d.L1PerCore
	c.uints(&l.CapacityBytes, &l.BufferBytes, &l.CBBytes, &l.FreeBytes, &l.Peak.TimeNs, &l.Peak.BufferBytes, &l.Peak.CBBytes)
}

func (c *stateCodec) chip(p **chip) {
	one := *p
	if c.reads {
		one = &chip{open: make(map[*processChip]bool)}
		*p = one
	}
	number(c.codec, &one.id)
	if c.reads {
		if c.state.chips[one.id] != nil {
			c.fail()
			return
		}
		one.pools = newPools(one, 0)
		c.state.chips[one.id] = one
	}
	c.text(&one.board)
	c.text(&one.arch)
	c.capacities(&one.capacities)
	c.usagePeaks(&one.used)
	for i := range one.pools {
		c.pool(&one.pools[i])
	}
}

// usagePeaks are those of what is in use.
func (c *stateCodec) usagePeaks(u *usage) {
	c.uints(&u.static.peak, &u.static.peakTime, &u.kernels.dramPeak, &u.kernels.textPeak)
	c.peak(&u.l1Buffers)
}

func (c *stateCodec) peak(p *peak) {
	c.uints(&p.bytes, &p.static, &p.time, &p.capacity, &p.number)
}

func (c *stateCodec) pool(q *pool) {
	c.peak(&q.peak)
	c.peak(&q.earlier)
	c.uints(&q.serial, &q.level, &q.levelStatic)
	c.timeline(&q.line)
	c.timeline(&q.staticLine)
	c.bool(&q.drawn)
}

func (c *stateCodec) timeline(t *Timeline) {
	c.uints(&t.BeginNs, &t.now)
	c.below(&t.shift, 64)
	var before Span
	list(c.codec, &t.spans, func(s *Span) {
		c.delta(&s.Min, before.Min)
		c.delta(&s.Max, before.Max)
		before = *s
	})
	if len(t.spans) > maxSpans {
		c.fail()
	}
}

// process is one that runs, without its programs and buffers.
func (c *stateCodec) process(pp **process) {
	p := *pp
	if c.reads {
		p = newProcess(0)
		*pp = p
	}
	number(c.codec, &p.pid)
	c.names.one(c.codec, &p.name, c.name)
	if c.reads {
		if c.state.processes[p.pid] != nil || p.name.pid != p.pid {
			c.fail()
			return
		}
		c.state.processes[p.pid] = p
	}
	c.text(&p.comm)
	c.about(&p.about)
	c.uints(&p.since, &p.beforeAttach)
	c.bool(&p.early)
	c.bool(&p.fromBegin)
	var shares []unfreedShare
	if !c.reads {
		shares = p.unfreedShares(maxHolders)
	}
	list(c.codec, &shares, func(l *unfreedShare) {
		c.region(&l.region, event.Region(event.BankedRegions))
		number(c.codec, &l.reason)
		c.holder(&l.Holder)
		c.uint(&l.size)
		if c.reads {
			p.addUnfreed(*l)
		}
	})
	list(c.codec, &p.sets, func(d **deviceSet) { c.set(d, p.name) })
	table(c.codec, p.allocators, func(address *uint64, a **allocator) {
		c.uint(address)
		c.allocator(made(c.codec, a), p.name)
	})
	table(c.codec, p.chips, func(id *int, one **processChip) {
		number(c.codec, id)
		if c.reads {
			if *one = p.chips[*id]; *one == nil { // it is in one of the sets
				c.fail()
				return
			}
		}
		c.processChip(*one, p)
	})
}

func (c *stateCodec) name(p **processName) {
	n := made(c.codec, p)
	number(c.codec, &n.pid)
	number(c.codec, &n.uid)
	c.text(&n.comm)
	c.text(&n.command)
	r := &n.run
	c.uints(&r.first, &r.last, &r.fromNs, &r.toNs, &r.allocations, &r.frees)
	c.bool(&r.open)
}

func (c *stateCodec) processChip(one *processChip, p *process) {
	c.capacities(&one.own)
	c.usagePeaks(&one.used)
	for i := range one.peaks {
		c.peak(&one.peaks[i])
	}
	// which are open, in order: by their addresses
	var open []uint64
	for _, a := range one.open {
		for address, known := range p.allocators {
			if a == known {
				open = append(open, address)
			}
		}
	}
	list(c.codec, &open, func(address *uint64) {
		if c.uint(address); !c.reads {
			return
		}
		a := p.allocators[*address]
		if a == nil || !slices.Contains(a.set.chips, one) {
			c.fail()
			return
		}
		one.open = append(one.open, a)
		one.chip.open[one] = true
	})
	there := one.alone != nil
	if c.bool(&there); there {
		c.set(&one.alone, p.name)
		if c.reads && !slices.Equal(one.alone.chips, []*processChip{one}) {
			c.fail()
		}
	}
}

func (c *stateCodec) allocator(a *allocator, of *processName) {
	c.set(&a.set, of)
	c.capacities(&a.capacities)
	c.uint(&a.since)
	c.text(&a.board)
	c.text(&a.arch)
	c.bool(&a.mesh)
	c.bool(&a.beforeAttach)
}

// set is the chips of a process; of one that ended, only what its call sites need.
func (c *stateCodec) set(d **deviceSet, of *processName) {
	c.sets.one(c.codec, d, func(d **deviceSet) {
		var ids []int
		if !c.reads {
			ids = (*d).ids
		}
		list(c.codec, &ids, func(id *int) {
			number(c.codec, id)
			if c.reads {
				if c.chips++; c.chips > maxStateChips {
					c.fail()
				}
			}
		})
		if c.reads {
			p := c.state.processes[of.pid]
			if p == nil || p.name != of {
				p = newProcess(of.pid)
				p.name = of
			}
			*d = c.state.newSet(p, ids)
		}
		var open []*arena
		if !c.reads {
			for _, allocator := range sortedKeys((*d).arenas) {
				open = append(open, (*d).arenas[allocator])
			}
		}
		list(c.codec, &open, func(a **arena) { c.arena(a, *d) })
	})
}

// arena is one of a set of chips. Those that are open are written with the set.
func (c *stateCodec) arena(p **arena, set *deviceSet) {
	c.arenas.one(c.codec, p, func(p **arena) {
		a := made(c.codec, p)
		c.uint(&a.allocator)
		c.bool(&a.closed)
		if !c.reads {
			return
		}
		a.set = set
		if !a.closed && set.arenas[a.allocator] != nil {
			c.fail()
		}
		if !a.closed {
			set.arenas[a.allocator] = a
		}
	})
	if (*p).set != set {
		c.fail()
	}
}
