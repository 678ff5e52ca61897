package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// programs are those of a process, on all its chips.
func (c *stateCodec) programs(p *process) {
	for _, id := range sortedKeys(p.chips) {
		chip := p.chips[id]
		table(c.codec, chip.programs, func(id *uint64, g **program) {
			c.uint(id)
			c.program(chip, made(c.codec, g))
		})
	}
}

func (c *stateCodec) program(chip *processChip, g *program) {
	list(c.codec, &g.static, func(e *staticEntry) {
		c.entry(e)
		if !e.global {
			c.siteOf(&e.site, chip, event.CB)
		}
		if c.reads && !c.bad {
			if c.bound(chip, e.place); !c.bad {
				chip.count(e, len(g.static) == 0)
				if e.site != nil {
					c.state.countIn(e.site, e.tally(), e.from.since)
				}
			}
		}
	})
	maybe(c.codec, &g.kernel, func(k *kernel) {
		c.uints(&k.dram, &k.text)
		c.origins.one(c.codec, &k.from, c.origin)
		c.siteOf(&k.site, chip, event.Kernel)
		if c.reads && !c.bad {
			chip.countKernel(k)
			c.state.countIn(k.site, k.tally(), k.from.since)
		}
	})
	if c.reads && len(g.static) == 0 && g.kernel == nil {
		c.fail()
	}
}

// entry is a circular buffer without its call site.
func (c *stateCodec) entry(e *staticEntry) {
	c.coreSets.one(c.codec, &e.place.Set, c.coreSet)
	c.uints(&e.place.Start, &e.place.End)
	number(c.codec, &e.kind)
	c.bool(&e.global)
	c.origins.one(c.codec, &e.from, c.origin)
	if e.place.End < e.place.Start {
		c.fail()
	}
}

func (c *stateCodec) origin(p **origin) {
	o := made(c.codec, p)
	c.uint(&o.since)
	c.stack(&o.stack)
	c.text(&o.comm)
	number(c.codec, &o.tid)
	c.bool(&o.beforeAttach)
}

func (c *stateCodec) coreSet(p **cores.Set) {
	var ranges []event.CoreRange
	if !c.reads {
		ranges = (*p).Ranges()
	}
	if c.ranges(&ranges); !c.reads {
		return
	}
	if *p = c.state.coreSets.Of(ranges); *p == nil {
		*p = &cores.Set{}
		c.fail()
	}
	if c.cores += (*p).Len(); c.cores > maxStateCores {
		c.fail()
	}
}

// siteOf is the call site of something on one chip of a process.
func (c *stateCodec) siteOf(site **callSite, chip *processChip, region event.Region) {
	c.sites.one(c.codec, site, func(**callSite) { c.fail() }) // all were written before
	if c.reads && !c.bad && (chip.alone == nil || (*site).set != chip.alone || (*site).region != region) {
		c.fail()
	}
}

// A placedAt is where a circular buffer is. The first one there is added to each core.
type placedAt struct {
	chip *processChip
	cores.Place
}

// bound adds what the next circular buffer takes to be counted.
func (c *stateCodec) bound(chip *processChip, place cores.Place) {
	if at := (placedAt{chip, place}); !c.placed[at] {
		if c.placed == nil {
			c.placed = make(map[placedAt]bool)
		}
		c.placed[at] = true
		c.coreSteps += place.Set.Len()
	}
	if c.coreSteps > maxStateCoreSteps {
		c.fail()
	}
}

// ended are the circular buffers that were there at the peak and are not now.
func (c *stateCodec) ended(q *pool) {
	list(c.codec, &q.ended, func(e *endedStatic) {
		number(c.codec, &e.pid)
		c.uint(&e.program)
		c.entry(&e.staticEntry)
	})
}

// buffers are those of a process, in order of their ids.
func (c *stateCodec) buffers(p *process, buffers []*buffer) {
	slices.SortFunc(buffers, func(a, b *buffer) int { return cmp.Compare(a.id, b.id) })
	n := c.length(len(buffers))
	last := make([]buffer, len(c.sites.list)) // of each site: the next one is much like it
	var before buffer
	for i := range n {
		var b *buffer
		site := 0
		if c.reads {
			b = new(buffer)
		} else {
			b = buffers[i]
			site = c.sites.numbers[b.callSite]
		}
		if c.below(&site, len(last)); c.bad {
			return
		}
		c.buffer(b, &before, &last[site])
		if one := c.sites.list[site]; one.perCore {
			c.coresOf(b)
		}
		before, last[site] = *b, *b
		if c.reads {
			b.callSite = c.sites.list[site]
			if c.bad || b.closed || b.set.process != p.name || int(b.region) >= event.BankedRegions || p.buffers.get(b.id) != nil {
				c.fail()
				return
			}
			c.state.count(p, b)
		}
	}
}

// coresOf are those of a buffer on single cores.
func (c *stateCodec) coresOf(b *buffer) {
	known := b.cores != nil
	if c.bool(&known); !known {
		return
	}
	c.coreSets.one(c.codec, &b.cores, c.coreSet)
	if c.reads {
		if c.coreSteps += b.cores.Len(); c.coreSteps > maxStateCoreSteps {
			c.fail()
		}
	}
}

// buffer is one without its site, after another one of the process and one of the site.
func (c *stateCodec) buffer(b, before, like *buffer) {
	c.delta(&b.id, before.id)
	c.delta(&b.since, before.since)
	c.delta(&b.object, before.object)
	c.delta(&b.address, like.address)
	c.delta(&b.size, like.size)
	c.delta(&b.pageSize, like.pageSize)
	c.delta(&b.perBank, like.perBank)
	number(c.codec, &b.banks)
	number(c.codec, &b.tid)
	c.text(&b.comm)
}
