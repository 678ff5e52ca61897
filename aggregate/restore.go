package aggregate

import "ttmem/tracer/event"

// count counts a buffer that was live at a checkpoint, and no peak.
func (s *State) count(p *process, b *buffer) {
	t := b.tally()
	p.buffers.put(b)
	p.live[b.region].add(t.on(len(b.set.chips)))
	s.countIn(b.callSite, t, b.since)
	for _, q := range b.set.poolsOf(b.region) {
		q.bytes += t.counts(b.region)
	}
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.regions[b.region].add(t)
		}
	}
}

// count counts a circular buffer of a program, of which it is the first or not, and no
// peak.
func (c *processChip) count(entry *staticEntry, first bool) {
	for _, u := range c.both() {
		t := &u.static
		if first {
			t.programs++
		}
		if entry.global {
			t.global++
			continue
		}
		t.count++
		t.sum += entry.place.Bytes()
		t.cores.Add(entry.place)
	}
	c.chip.pools[event.L1].setStatic(c.chip.used.static.cores.Max())
}

func (c *processChip) countKernel(k *kernel) {
	for _, u := range c.both() {
		t := &u.kernels
		t.programs++
		t.dram += k.dram
		t.textSum += k.text
	}
}
