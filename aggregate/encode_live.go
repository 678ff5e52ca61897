package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/cores"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// programs writes or reads the programs of a process on all its chips.
func (c *stateCodec) programs(p *process) {
	for _, chip := range sortedValues(p.chips) {
		c.Bool(&chip.ran)
		c.Bool(&chip.loaded)
		codec.Table(c.Codec, chip.programs, func(id *uint64, g **program) {
			c.Uint(id)
			if c.Reads {
				c.hold(quota.Program)
			}
			c.program(chip, codec.Made(c.Codec, g))
		})
		c.latestRun(chip)
	}
}

func (c *stateCodec) program(chip *processChip, g *program) {
	codec.List(c.Codec, &g.static, func(e *staticEntry) {
		c.entry(e)
		if !e.global {
			c.siteOf(&e.site, chip, event.CB)
		}
		if c.Reads && !c.Bad {
			if e.place.Set = c.reading.coreSets.Of(e.place.Set.Ranges()); e.place.Set == nil || !g.hasRoom(e.place.Set) {
				c.Fail()
				return
			}
			if !g.hasSet(e.place.Set) {
				g.steps += e.place.Set.Len()
			}
			c.hold(1)
			chip.count(e, len(g.static) == 0)
			if e.site != nil {
				c.reading.countIn(e.site, e.tally(), e.from.since)
			}
		}
	})
	codec.Maybe(c.Codec, &g.kernel, func(k *kernel) {
		codec.Number(c.Codec, &k.kind)
		if k.kind >= event.NumKernelKinds {
			c.Fail()
			k.kind = 0
		}
		c.Uints(&k.dram, &k.text)
		c.origins.One(c.Codec, &k.from, c.origin)
		c.siteOf(&k.site, chip, event.Kernel)
		if c.Reads && !c.Bad {
			c.hold(1)
			chip.countKernel(1, k)
			c.reading.countIn(k.site, k.tally(), k.from.since)
		}
	})
	c.run(&g.run, chip)
	if c.Reads && len(g.static) == 0 && g.kernel == nil {
		c.Fail()
	}
}

// entry writes or reads a circular buffer without its call site.
func (c *stateCodec) entry(e *staticEntry) {
	c.coreSets.One(c.Codec, &e.place.Set, c.coreSet)
	c.Uints(&e.place.Start, &e.place.End)
	codec.Number(c.Codec, &e.kind)
	c.Bool(&e.global)
	c.origins.One(c.Codec, &e.from, c.origin)
	if e.place.End < e.place.Start {
		c.Fail()
	}
}

func (c *stateCodec) origin(p **origin) {
	o := codec.Made(c.Codec, p)
	c.Uint(&o.since)
	c.Stack(&o.stack)
	c.Bool(&o.beforeAttach)
}

func (c *stateCodec) coreSet(p **cores.Set) {
	var ranges []event.CoreRange
	if !c.Reads {
		ranges = (*p).Ranges()
	}
	if c.Value(&ranges); !c.Reads {
		return
	}
	if *p = c.reading.coreSets.Of(ranges); *p == nil {
		*p = &cores.Set{}
		c.Fail()
	}
}

// siteOf writes or reads the call site of a circular buffer or a kernel, which is on one chip.
func (c *stateCodec) siteOf(site **callSite, chip *processChip, region event.Region) {
	c.sites.One(c.Codec, site, func(**callSite) { c.Fail() }) // all were written before
	if c.Reads && !c.Bad && (chip.alone == nil || (*site).set != chip.alone || (*site).Region != region) {
		c.Fail()
	}
}

// buffers writes or reads the buffers of a process, in order of their ids.
func (c *stateCodec) buffers(p *process, buffers []*buffer) {
	slices.SortFunc(buffers, func(a, b *buffer) int { return cmp.Compare(a.BufferID, b.BufferID) })
	n := c.Length(len(buffers))
	if c.reading = p; c.Reads {
		if c.hold(n); c.Bad {
			return
		}
	}
	if c.last == nil {
		c.last = make([]buffer, len(c.sites.List))
	}
	last := c.last
	var before buffer
	for i := range n {
		var b *buffer
		site := 0
		if c.Reads {
			b = new(buffer)
		} else {
			b = buffers[i]
			site = c.sites.Numbers[b.callSite]
		}
		if c.Below(&site, len(last)); c.Bad {
			return
		}
		c.buffer(b, &before, &last[site])
		if one := c.sites.List[site]; one.PerCore {
			c.coresOf(b)
		}
		before, last[site] = *b, *b
		if c.Reads {
			b.callSite = c.sites.List[site]
			if c.Bad || b.closed || b.set.process != p.name || int(b.Region) >= event.BankedRegions || p.buffers.Get(b.BufferID) != nil {
				c.Fail()
				return
			}
			p.buffers.Put(b.BufferID, b)
			p.countIn(b.callSite, b.tally(), b.SinceNs)
			p.include(b, true) // without a change of peaks
		}
	}
}

// coresOf writes or reads the cores of a buffer on single cores.
func (c *stateCodec) coresOf(b *buffer) {
	known := b.CoreSet != nil
	if c.Bool(&known); !known {
		return
	}
	c.coreSets.One(c.Codec, &b.CoreSet, c.coreSet)
	if c.Reads {
		b.CoreSet = c.reading.coreSets.Of(b.CoreSet.Ranges())
	}
}

// buffer writes or reads a buffer without its site, as differences to the buffer before it and
// to the last one of its site.
func (c *stateCodec) buffer(b, before, like *buffer) {
	c.Delta(&b.BufferID, before.BufferID)
	c.Delta(&b.SinceNs, before.SinceNs)
	c.Delta(&b.Object, before.Object)
	c.Delta(&b.Address, like.Address)
	c.Delta(&b.SizeBytes, like.SizeBytes)
	c.Delta(&b.PageSizeBytes, like.PageSizeBytes)
	c.Delta(&b.BytesPerBank, like.BytesPerBank)
	codec.Number(c.Codec, &b.Banks)
	codec.Number(c.Codec, &b.DataBanks)
	codec.Number(c.Codec, &b.TID)
	c.Text(&b.Comm)
}
