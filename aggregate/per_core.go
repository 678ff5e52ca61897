package aggregate

import (
	"ttmem/aggregate/cores"
	"ttmem/tracer/event"
)

// countCores updates the L1 pool after the buffers on single cores changed.
func (c *chip) countCores() { c.pools[event.L1].SetLoad(c.used.Load.Fullest()) }

// loadCores counts a buffer that is on single cores on each of them. To be called after its
// call site was saved.
func (b *buffer) loadCores() {
	b.changeCores(func(l *cores.Load) { l.Add(b.CoreSet, b.BytesPerBank) }, 1)
}

// unloadCores undoes loadCores.
func (b *buffer) unloadCores() {
	b.changeCores(func(l *cores.Load) { l.Remove(b.CoreSet, b.BytesPerBank) }, -1)
}

func (b *buffer) changeCores(change func(*cores.Load), count int) {
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
	change(l)
	b.set.changeCores(change)
}

// unloadCores undoes loadCores for all buffers of a call site.
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
		c.chip.countCores()
	}
}

// load returns the site's live buffers on single cores; nil if there are none.
func (c *callSite) load() *cores.Load {
	if !c.PerCore {
		return nil
	}
	return c.loads[c]
}
