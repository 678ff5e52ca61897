package aggregate

import (
	"ttmem/tracer/event"
)

// A chip is one physical device, with what all processes use of it.
type chip struct {
	id          int
	board, arch string
	// capacities by region; they stay when the last allocator is closed, as a
	// report is mostly read afterwards.
	capacities capacities
	// open are the processes that have it open, where their capacities are known.
	open map[*processChip]bool
	used usage
	// ranges are the least and the most of each level since TakeRanges, and staticRange
	// of what circular buffers take.
	ranges      [event.BankedRegions]Span
	staticRange Span
	l1          l1Level
	pools       [event.BankedRegions]pool
}

// usage is what is in use on one chip: by all processes, or by one of them.
type usage struct {
	regions [event.BankedRegions]regionUsage
	static  staticUsage
	kernels kernelUsage
	// l1Peak is the most that buffers and circular buffers took of L1 together.
	l1Peak l1Peak
}

type regionUsage struct {
	buffers uint64
	// size is the sum of the buffers' sizes, perBank of what they take of each
	// bank, and allocated of what they take of all their banks. Bytes.
	size, perBank, allocated uint64
	// peak is the most that allocated has been, at peakTime, on a chip that had
	// peakCapacity bytes then.
	peak, peakTime, peakCapacity uint64
}

// An l1Level is what is taken of a core's L1, and what circular buffers take of that. While
// these do not fit it is what it was before, less what is freed: the library places the
// circular buffers of a program before it looks whether they meet a tensor, and those that
// do were never there.
type l1Level struct{ all, static uint64 }

// note is to be called after each change of what is taken, of so much at the most: 0 where
// that is not known. What comes to fit as something is freed is known to do so when
// something grows.
func (l *l1Level) note(all, static, most uint64, grew bool) {
	if (most == 0 || all <= most) && (grew || all <= l.all) {
		*l = l1Level{all, static}
	}
}

type l1Peak struct{ buffers, static, time uint64 }

// chip returns the chip of that id, which it makes where there is none yet.
func (s *State) chip(id int) *chip {
	c := s.chips[id]
	if c == nil {
		c = &chip{id: id, open: make(map[*processChip]bool)}
		c.pools = newPools(c)
		s.chips[id] = c
	}
	return c
}

// add counts a buffer that was allocated at the time now, on a chip of these
// capacities.
func (u *usage) add(b *buffer, c *capacities, now uint64) {
	r := &u.regions[b.region]
	r.buffers++
	r.size += b.size
	r.perBank += b.perBank
	r.allocated += b.allocated()
	if r.allocated > r.peak {
		r.peak, r.peakTime, r.peakCapacity = r.allocated, now, total(c[b.region])
	}
}

// remove takes back what add counted.
func (u *usage) remove(b *buffer) {
	r := &u.regions[b.region]
	r.buffers--
	r.size -= b.size
	r.perBank -= b.perBank
	r.allocated -= b.allocated()
}

// noteL1Peak is to be called after each growth of buffers or circular buffers in L1. The two
// grow towards each other, so it is their sum that has to fit.
func (c *processChip) noteL1Peak(now uint64) {
	if !c.chip.pools[event.L1].fits() {
		return // which is no moment: see l1Level
	}
	for _, u := range c.both() {
		buffers, static := u.regions[event.L1].perBank, u.static.cores.Max()
		if buffers+static > u.l1Peak.buffers+u.l1Peak.static {
			u.l1Peak = l1Peak{buffers, static, now}
		}
	}
}
