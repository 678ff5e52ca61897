package aggregate

import (
	"fmt"

	"ttmem/tracer/event"
)

// site is a call site, with all the allocators that it has.
func (c *stateCodec) site(first **callSite) {
	var key siteKey
	var of *processName
	var set *deviceSet
	var stack *event.Stack
	var all []*callSite
	if !c.reads {
		one := *first
		key, of, set, stack = one.siteKey, one.set.process, one.set, one.stack
		for one := range one.all() {
			all = append(all, one)
		}
	}
	c.names.one(c.codec, &of, c.name)
	c.set(&set, of)
	c.region(&key.region, event.NumRegions)
	number(c.codec, &key.layout)
	number(c.codec, &key.static)
	c.bool(&key.before)
	c.stack(&stack)
	key.stackID = stackID(stack)
	list(c.codec, &all, func(p **callSite) {
		one := made(c.codec, p)
		if c.reads {
			one.siteKey, one.stack = key, stack
			one.atPeak = make([]siteAtPeak, len(set.poolsOf(key.region)))
		}
		c.arena(&one.arena, set)
		c.tallies(one)
		c.siteRun(&one.run)
		c.sites.add(one)
	})
	if !c.reads {
		return
	}
	if c.bad || len(all) == 0 || set.process != of || set.sites[key] != nil {
		c.fail()
		return
	}
	for i, one := range all[1:] {
		all[i].other = one
	}
	*first = all[0]
	set.sites[key] = all[0]
}

// tallies are those of a site. What is live is counted with the buffers and programs.
func (c *stateCodec) tallies(one *callSite) {
	c.amount(&one.allocated)
	c.amount(&one.ended)
	c.uints(&one.since, &one.each)
	for i := range one.atPeak {
		at := &one.atPeak[i]
		c.uints(&at.serial, &at.perBank)
		c.amount(&at.Amount)
	}
}

func (c *stateCodec) amount(a *Amount) { c.uints(&a.Count, &a.Bytes) }

func (c *stateCodec) siteRun(r *siteRun) {
	c.bool(&r.open)
	c.bool(&r.over)
	if !r.open {
		return
	}
	c.uints(&r.first, &r.last, &r.gap, &r.frees[0], &r.frees[1])
	c.births(&r.births)
	maybe(c.codec, &r.freed, func(p *freedRun) {
		c.uints(&p.freedTo, &p.freedAt, &p.at, &p.newest, &p.lastID)
		c.births(&p.births)
		c.amount(&p.ended)
		c.amount(&p.freedAtTeardown)
		c.bool(&p.any)
	})
}

// births are written up to the last part that has any.
func (c *stateCodec) births(b *births) {
	number(c.codec, &b.shift)
	n := 0
	for i, part := range b.parts {
		if part > 0 {
			n = i + 1
		}
	}
	c.below(&n, birthParts+1)
	for i := range n {
		number(c.codec, &b.parts[i])
	}
}

// survivors are those of a site whose allocator was closed.
func (c *stateCodec) survivors(p **Survivors) {
	v := made(c.codec, p)
	c.names.one(c.codec, &v.site.process, c.name)
	c.text(&v.Comm)
	c.text(&v.Command)
	c.stack(&v.Stack)
	c.region(&v.Region, event.Region(event.BankedRegions))
	number(c.codec, &v.Layout)
	list(c.codec, &v.Devices, func(id *int) { number(c.codec, id) })
	c.amount(&v.Amount)
	c.amount(&v.FreedAtTeardown)
	c.uints(&v.AgeNs, &v.Allocated, &v.WorkedFromNs, &v.WorkedToNs)
	r := &v.Run
	for i := range r.Births {
		c.uint(&r.Births[i])
	}
	c.uints(&r.First, &r.Last, &r.Gap, &r.ProcessFirst, &r.ProcessLast, &r.FreedAt, &r.Outlived, &r.FreedMeanwhile, &r.Replaceable)
	if c.reads {
		v.PID = v.site.process.pid
		v.site = survivorKey{v.site.process, stackID(v.Stack), v.Region, v.Layout, fmt.Sprint(v.Devices)}
	}
}
