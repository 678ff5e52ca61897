package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/codec"
	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// stateVersion is the first byte of an encoded State.
const stateVersion = 3

// Bounds of what is read: damaged input is not to cost more than a State that is large.
const (
	maxStateChips     = 1 << 16 // of all processes together
	maxStateCores     = 1 << 20 // of all sets of cores together
	maxStateCoreSteps = 1 << 23 // of the circular buffers on each of their cores
)

// A stateCodec writes or reads a State. What follows from the buffers and the programs,
// such as what is in use on a chip, is not written: it is added up when they are read.
type stateCodec struct {
	*codec.Codec
	state    *State
	names    codec.Once[processName]
	sets     codec.Once[deviceSet]
	coreSets codec.Once[cores.Set]
	origins  codec.Once[origin]
	arenas   codec.Once[arena]
	sites    codec.Once[callSite]
	// chips, cores and coreSteps are how many were read, and placed where.
	chips, cores, coreSteps int
	placed                  map[placedAt]bool
}

// few writes or reads all but what a process may have a million of.
func (c *stateCodec) few(s *State, of *frozen) {
	c.Uints(&s.now, &s.first, &s.applied, &s.freshSince, &s.exitedCount)
	c.Bool(&s.restored)
	c.Uints(&s.anomalies.RepeatedFrees, &s.anomalies.ReplacedBuffers, &s.anomalies.UnplacedBuffers, &s.anomalies.MalformedEvents, &s.anomalies.UnknownCores)
	codec.Table(c.Codec, s.lost, func(cause *string, n *uint64) { c.Text(cause); c.Uint(n) })
	c.Uints(&s.beginning.point.Number, &s.beginning.point.TimeNs)
	c.Bool(&s.beginning.over)
	for _, m := range []*marks{&s.marks, &s.callMarks} {
		c.Uint(&m.count)
		codec.List(c.Codec, &m.list, c.mark)
	}
	c.Uint(&s.failures.count)
	codec.List(c.Codec, &s.failures.list, c.failure)
	codec.List(c.Codec, &s.exited, c.exited)
	for i := range s.unplaced {
		c.pool(&s.unplaced[i])
	}
	codec.List(c.Codec, &of.chips, c.chip)
	codec.List(c.Codec, &of.processes, c.process)
	codec.List(c.Codec, &s.sites, c.site)
	codec.Number(c.Codec, &s.keptSites)
	codec.List(c.Codec, &s.endedSurvivors, c.survivors)
	c.amount(&s.otherSurvivors)
	c.Uint(&s.allocations)
	for i := range of.processes {
		c.programs(of.processes[i])
	}
	for i := range of.chips {
		c.ended(&(*of.chips[i]).pools[event.L1])
	}
}

func (c *stateCodec) mark(m *Mark) {
	c.Uints(&m.TimeNs, &m.Number)
	c.Text(&m.Name)
	codec.Number(c.Codec, &m.uid)
}

func (c *stateCodec) failure(f *Failure) {
	c.Uints(&f.TimeNs, &f.SizeBytes, &f.BytesPerBank, &f.ProgramID, &f.number)
	codec.Number(c.Codec, &f.PID)
	codec.Number(c.Codec, &f.TID)
	codec.Number(c.Codec, &f.UID)
	codec.Number(c.Codec, &f.Banks)
	for _, s := range []*string{&f.Comm, &f.Region, &f.Reason, &f.Message} {
		c.Text(s)
	}
	c.ids(&f.Devices)
	c.Stack(&f.Stack)
	codec.Maybe(c.Codec, &f.Evidence, c.evidence)
}

// ids are those of chips. They are never nil.
func (c *stateCodec) ids(ids *[]int) {
	codec.List(c.Codec, ids, func(id *int) { codec.Number(c.Codec, id) })
	if *ids == nil {
		*ids = []int{}
	}
}

func (c *stateCodec) evidence(e *Evidence) {
	c.Region(&e.Region, event.Region(event.BankedRegions))
	c.capacity(&e.Capacity)
	c.Bool(&e.PerCore)
	c.Uints(&e.FreeBytesPerBank, &e.LargestFreeBytesPerBank, &e.From, &e.To, &e.Lowest)
	c.blame(&e.Live)
	c.blame(&e.Blocking)
	codec.List(c.Codec, &e.Holders, c.blame)
	codec.List(c.Codec, &e.Blockers, c.blame)
	codec.List(c.Codec, &e.Statics, c.static)
}

func (c *stateCodec) blame(b *Blame) {
	c.Uints(&b.BytesPerBank, &b.Count, &b.Address, &b.End)
	c.Bool(&b.BeforeAttach)
	c.Stack(&b.Stack)
}

func (c *stateCodec) static(s *Static) {
	c.Uints(&s.ProgramID, &s.Address, &s.BytesPerCore, &s.SinceNs)
	codec.Number(c.Codec, &s.PID)
	codec.Number(c.Codec, &s.Device)
	codec.Number(c.Codec, &s.Kind)
	c.ranges(&s.Cores)
	c.Bool(&s.Global)
	c.Bool(&s.BeforeAttach)
	c.Stack(&s.Stack)
}

func (c *stateCodec) ranges(l *[]event.CoreRange) {
	codec.List(c.Codec, l, func(r *event.CoreRange) {
		for _, n := range []*uint16{&r.X0, &r.Y0, &r.X1, &r.Y1} {
			codec.Number(c.Codec, n)
		}
	})
}

func (c *stateCodec) capacity(v *event.Capacity) {
	codec.Number(c.Codec, &v.Banks)
	c.Uints(&v.BytesPerBank, &v.Base)
}

func (c *stateCodec) capacities(list *capacities) {
	for i := range list {
		c.capacity(&list[i])
	}
}

// exited is a process that ended.
func (c *stateCodec) exited(p *Process) {
	codec.Number(c.Codec, &p.PID)
	c.Text(&p.Comm)
	c.about(&p.About)
	c.Uints(&p.BeforeAttachBuffers, &p.SinceNs)
	codec.List(c.Codec, &p.Devices, c.device)
	if p.Devices == nil {
		p.Devices = []Device{}
	}
	codec.Maybe(c.Codec, &p.Exit, func(x *Exit) {
		c.Uint(&x.TimeNs)
		codec.Maybe(c.Codec, &x.Status, func(status *int) { codec.Number(c.Codec, status) })
	})
	codec.List(c.Codec, &p.Unfreed, func(l *RegionTotal) {
		c.Text(&l.Region)
		c.Text(&l.Reason)
		c.Uints(&l.Buffers, &l.SizeBytes, &l.AllocatedBytes)
		codec.List(c.Codec, &l.Holders, c.holder)
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
		c.Text(s)
	}
	codec.Number(c.Codec, &a.UID)
	codec.Number(c.Codec, &a.ContainerPID)
	c.Bool(&a.AttachedLate)
}

func (c *stateCodec) holder(h *Holder) {
	c.Uints(&h.Bytes, &h.Count, &h.Stacks)
	c.Bool(&h.BeforeAttach)
	c.Stack(&h.Stack)
}

// device is a chip of a process that ended: it has no sharers.
func (c *stateCodec) device(d *Device) {
	codec.Number(c.Codec, &d.ID)
	c.Text(&d.Board)
	c.Text(&d.Arch)
	for i := range event.Region(event.BankedRegions) {
		r := d.Regions.Banked(i)
		codec.Number(c.Codec, &r.Banks)
		c.Uints(&r.Buffers, &r.SizeBytes, &r.BytesPerBank, &r.AllocatedBytes, &r.CapacityBytes,
			&r.CapacityBytesPerBank, &r.PeakBytes, &r.PeakTimeNs, &r.PeakCapacityBytes)
	}
	u := &d.Regions.CB
	c.Uints(&u.Programs, &u.Count, &u.GlobalCount, &u.MaxBytesPerCore, &u.Bytes, &u.SumBytes, &u.PeakBytesPerCore, &u.PeakTimeNs)
	k := &d.Regions.Kernel
	c.Uints(&k.Programs, &k.MaxBytesPerCore, &k.SumBytes, &k.PeakBytesPerCore, &k.DRAMBytes, &k.PeakDRAMBytes)
	l := &d.L1PerCore
	c.Uints(&l.CapacityBytes, &l.BufferBytes, &l.CBBytes, &l.FreeBytes, &l.Peak.TimeNs, &l.Peak.BufferBytes, &l.Peak.CBBytes)
}

func (c *stateCodec) chip(p **chip) {
	one := *p
	if c.Reads {
		one = &chip{open: make(map[*processChip]bool)}
		*p = one
	}
	codec.Number(c.Codec, &one.id)
	if c.Reads {
		if c.state.chips[one.id] != nil {
			c.Fail()
			return
		}
		one.pools = newPools(one, 0)
		c.state.chips[one.id] = one
	}
	c.Text(&one.board)
	c.Text(&one.arch)
	c.capacities(&one.capacities)
	c.usagePeaks(&one.used)
	for i := range one.pools {
		c.pool(&one.pools[i])
	}
}

// usagePeaks are those of what is in use.
func (c *stateCodec) usagePeaks(u *usage) {
	c.Uints(&u.static.peak, &u.static.peakTime, &u.kernels.dramPeak, &u.kernels.textPeak)
	c.peak(&u.l1Buffers)
}

func (c *stateCodec) peak(p *peak) {
	c.Uints(&p.bytes, &p.static, &p.time, &p.capacity, &p.number)
}

func (c *stateCodec) pool(q *pool) {
	c.peak(&q.peak)
	c.peak(&q.earlier)
	codec.Number(c.Codec, &q.peakCore.X)
	codec.Number(c.Codec, &q.peakCore.Y)
	c.Uints(&q.serial, &q.level, &q.levelStatic)
	q.line.Code(c.Codec)
	q.staticLine.Code(c.Codec)
	c.Bool(&q.drawn)
}

// process is one that runs, without its programs and buffers.
func (c *stateCodec) process(pp **process) {
	p := *pp
	if c.Reads {
		p = newProcess(0)
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
	var shares []unfreedShare
	if !c.Reads {
		shares = p.unfreedShares(maxHolders)
	}
	codec.List(c.Codec, &shares, func(l *unfreedShare) {
		c.Region(&l.region, event.Region(event.BankedRegions))
		codec.Number(c.Codec, &l.reason)
		c.holder(&l.Holder)
		c.Uint(&l.size)
		if c.Reads {
			p.addUnfreed(*l)
		}
	})
	codec.List(c.Codec, &p.sets, func(d **deviceSet) { c.set(d, p.name) })
	codec.Table(c.Codec, p.allocators, func(address *uint64, a **allocator) {
		c.Uint(address)
		c.allocator(codec.Made(c.Codec, a), p.name)
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
	c.about(&n.about)
	r := &n.run
	c.Uints(&r.first, &r.last, &r.fromNs, &r.toNs, &r.allocations, &r.frees)
	c.Bool(&r.open)
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
	codec.List(c.Codec, &open, func(address *uint64) {
		if c.Uint(address); !c.Reads {
			return
		}
		a := p.allocators[*address]
		if a == nil || !slices.Contains(a.set.chips, one) {
			c.Fail()
			return
		}
		one.open = append(one.open, a)
		one.chip.open[one] = true
	})
	there := one.alone != nil
	if c.Bool(&there); there {
		c.set(&one.alone, p.name)
		if c.Reads && !slices.Equal(one.alone.chips, []*processChip{one}) {
			c.Fail()
		}
	}
}

func (c *stateCodec) allocator(a *allocator, of *processName) {
	c.set(&a.set, of)
	c.capacities(&a.capacities)
	c.Uint(&a.since)
	c.Text(&a.board)
	c.Text(&a.arch)
	c.Bool(&a.mesh)
	c.Bool(&a.beforeAttach)
}
