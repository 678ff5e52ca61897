package aggregate

import (
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
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
	memory.Encoding
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
		codec.List(c.Codec, &m.list, c.Mark)
	}
	c.Uint(&s.failures.count)
	codec.List(c.Codec, &s.failures.list, c.Failure)
	codec.List(c.Codec, &s.exited, c.Exited)
	for i := range s.unplaced {
		c.pool(&s.unplaced[i])
	}
	codec.List(c.Codec, &of.chips, c.chip)
	codec.List(c.Codec, &of.processes, c.process)
	codec.List(c.Codec, &s.sites, c.site)
	codec.Number(c.Codec, &s.keptSites)
	codec.List(c.Codec, &s.endedSurvivors, c.survivors)
	c.Amount(&s.otherSurvivors)
	c.Uint(&s.allocations)
	for i := range of.processes {
		c.programs(of.processes[i])
	}
	for i := range of.chips {
		c.ended(&(*of.chips[i]).pools[event.L1])
	}
}

func (c *stateCodec) capacities(list *capacities) {
	for i := range list {
		c.Capacity(&list[i])
	}
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
		c.Holder(&l.Holder)
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
	c.About(&n.about)
	n.run.Code(c.Encoding)
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
