package aggregate

import (
	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// site writes or reads a call site with all its allocators.
func (c *stateCodec) site(first **callSite) {
	var of memory.Site
	var set *deviceSet
	var all []*callSite
	if !c.Reads {
		of, set = (*first).Site, (*first).set
		for one := range (*first).all() {
			all = append(all, one)
		}
	}
	c.identity(&of, &set)
	key := of.KeyOn(set.devices)
	codec.List(c.Codec, &all, func(p **callSite) {
		one := codec.Made(c.Codec, p)
		if c.Reads {
			one.Site = of
			one.atPeak = make(peak.Shares, len(set.poolsOf(of.Region)))
		}
		c.arena(&one.arena, set)
		c.tallies(one)
		one.run.Code(c.Codec)
		one.temporary.Code(c.Codec)
		c.sites.Add(one)
		if c.Reads {
			if c.state.rooms.sites.Add(set.process.user(), 1); c.state.rooms.sites.Full() {
				c.Fail()
			}
		}
	})
	if !c.Reads {
		return
	}
	if c.Bad || len(all) == 0 {
		c.Fail()
		return
	}
	for i, one := range all[1:] {
		all[i].other = one
	}
	if head := set.sites[key]; head != nil {
		// Two stacks of a process may have the same frames, such as their Python part where the native
		// part could not be taken. In a recording they are the same stack.
		all[len(all)-1].other, head.other = head.other, all[0]
		return // it is not a first one
	}
	*first = all[0]
	set.sites[key] = all[0]
}

// identity writes or reads what identifies a call site.
func (c *stateCodec) identity(of *memory.Site, set **deviceSet) {
	c.setOfProcess(set)
	of.PID, of.Devices = (*set).process.pid, (*set).ids
	c.Value(&of.Region)
	codec.Number(c.Codec, &of.Layout)
	codec.Number(c.Codec, &of.Static)
	c.Bool(&of.BeforeAttach)
	c.Bool(&of.PerCore)
	c.Stack(&of.Stack)
}

// pastSite writes or reads a call site of buffers that ended. The state may have forgotten it.
func (c *stateCodec) pastSite(p **callSite) {
	c.sites.One(c.Codec, p, func(p **callSite) {
		one := codec.Made(c.Codec, p)
		var set *deviceSet
		if !c.Reads {
			set = one.set
		}
		c.identity(&one.Site, &set)
		c.arena(&one.arena, set)
		c.Value(&one.allocated)
	})
	c.checkBanked((*p).Region)
}

// tallies writes or reads the tallies of a site, except for those of live allocations:
// reading the buffers and programs adds them up.
func (c *stateCodec) tallies(one *callSite) {
	c.Value(&one.allocated)
	c.Value(&one.ended)
	c.Uint(&one.since)
	codec.Number(c.Codec, &one.overlapped)
	one.atPeak.Code(c.Codec)
}

// setOfProcess writes or reads a process and a set of its chips.
func (c *stateCodec) setOfProcess(d **deviceSet) {
	var of *processName
	if !c.Reads {
		of = (*d).process
	}
	c.names.One(c.Codec, &of, c.name)
	if c.set(d, of); (*d).process != of {
		c.Fail()
	}
}

// set writes or reads a set of chips of a process. If the process ended, reading makes only
// the parts that its call sites need.
func (c *stateCodec) set(d **deviceSet, of *processName) {
	c.sets.One(c.Codec, d, func(d **deviceSet) {
		var ids []int
		if !c.Reads {
			ids = (*d).ids
		}
		codec.List(c.Codec, &ids, func(id *int) {
			codec.Number(c.Codec, id)
		})
		if c.Reads {
			c.links++
			if p := c.state.processes[of.pid]; p == nil || p.name != of {
				*d = c.state.endedSet(of, ids)
			} else {
				c.links += len(ids)
				*d = p.newSet(ids)
				p.kept.links += 1 + len(ids)
			}
			if c.links > maxSets {
				c.Fail()
			}
		}
		var open []*arena
		if !c.Reads {
			open = sortedValues((*d).arenas)
		}
		codec.List(c.Codec, &open, func(a **arena) { c.arena(a, *d) })
	})
}

// arena writes or reads an arena of a set of chips. Open ones are written with the set.
func (c *stateCodec) arena(p **arena, set *deviceSet) {
	c.arenas.One(c.Codec, p, func(p **arena) {
		a := codec.Made(c.Codec, p)
		c.Uint(&a.allocator)
		c.Bool(&a.closed)
		if !c.Reads {
			return
		}
		a.set = set
		if !a.closed && set.arenas[a.allocator] != nil {
			c.Fail()
		}
		if a.closed {
			return
		}
		set.arenas[a.allocator] = a
		if p := c.state.processes[set.process.pid]; p != nil && p.name == set.process && a.allocator != 0 {
			p.kept.links++
		}
	})
	if (*p).set != set {
		c.Fail()
	}
}
