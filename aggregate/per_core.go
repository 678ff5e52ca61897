package aggregate

import (
	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// changeCores adds a buffer that is on single cores to each of them, or removes it; count is 1 or -1.
func (b *buffer) changeCores(with func(*cores.Load, *cores.Set, uint64), count int) {
	if !b.PerCore {
		return
	}
	if b.Address == 0 {
		b.arena.scattered += count
	}
	if b.CoreSet == nil {
		return
	}
	l := b.loads[b.callSite]
	if l == nil {
		if l = new(cores.Load); b.loads == nil {
			b.arena.loads = make(map[*callSite]*cores.Load)
		}
		b.loads[b.callSite] = l
	}
	change := func(l *cores.Load) { with(l, b.CoreSet, b.BytesPerBank) }
	change(l)
	b.set.changeCores(change)
}

// unloadCores removes all buffers of a call site from single cores.
func (c *callSite) unloadCores() {
	if load := c.loads[c]; load != nil {
		c.set.changeCores(func(l *cores.Load) { l.Subtract(load) })
		delete(c.loads, c)
	}
}

// changeCores changes the loads of the set's chips.
func (d *deviceSet) changeCores(change func(*cores.Load)) {
	for _, c := range d.chips {
		for _, u := range c.both() {
			change(&u.Load)
		}
		c.chip.pools[event.L1].SetLoad(c.chip.used.Load.Fullest())
	}
}

// load returns the site's live buffers on single cores; nil if there are none.
func (c *callSite) load() *cores.Load {
	if !c.PerCore {
		return nil
	}
	return c.loads[c]
}
