package memoryviz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A place is a region of a chip: a device of the viewer.
type place struct {
	chip   int
	region event.Region
}

func (p place) String() string {
	if p.chip == memory.NoDevice {
		return "unknown chip " + p.region.String()
	}
	return fmt.Sprintf("chip %d %s", p.chip, p.region)
}

// A block is a live buffer. Address and size are those in all banks.
type block struct {
	devices         []*device
	address, size   uint64
	requested       uint64
	stack           int // number in the memo
	pid             int
	buffer, perBank uint64 // its id, and its address in a bank
	from            *event.Stack
	owner           memory.Owner
	memo            int // number of its text for the first device in the memo; those for the others follow
}

func (b *block) end() uint64 { return b.address + b.size }

// A spooled list has batches of its items in the spool, and a begun one.
type spooled struct {
	parts []part
	begun pickle
	items int
}

// A device has the events of a place.
type device struct {
	place
	spooled
	capacity event.Capacity
	banks    uint64
	segments [2]segment
	taken    map[uint64]bool // addresses of live buffers
	used     uint64
}

// A segment has the addresses that its buffers had, and at the end the live ones.
type segment struct {
	device      int
	first, last uint64 // 0, 0: none
	blocks      []*block
}

// include makes a segment contain addresses.
func (s *segment) include(first, last uint64) {
	if s.last == 0 {
		s.first = first
	}
	s.first, s.last = min(s.first, first), max(s.last, last)
}

// segment returns the segment of a block.
func (d *device) segment(b *block) *segment {
	if b.address >= elsewhere {
		return &d.segments[1]
	}
	return &d.segments[0]
}

type part struct {
	offset int64
	length int
}

// grow notes a capacity. A mesh and its submeshes have the same memory: the largest counts.
func (d *device) grow(c event.Capacity) {
	if c.Total() > d.capacity.Total() {
		d.capacity, d.banks = c, uint64(c.Banks)
	}
}

// result returns the devices that have events, in order, with their segments.
func (w *Writer) result() (list []*device) {
	for _, d := range w.devices {
		if w.flush(&d.spooled); d.items > 0 {
			list = append(list, d)
		}
		if total := d.capacity.Total(); total > 0 && total < maxSize {
			s := &d.segments[0]
			first := d.capacity.Base * d.banks
			if first == 0 || first >= maxSize { // not known
				first = s.first
			}
			s.include(first, first+total)
		}
	}
	for _, b := range slices.SortedFunc(maps.Values(w.live), func(a, b *block) int { return cmp.Compare(a.memo, b.memo) }) {
		w.describe(b)
		for _, d := range b.devices {
			s := d.segment(b)
			s.blocks = append(s.blocks, b)
		}
	}
	w.flush(&w.texts)
	slices.SortFunc(list, func(a, b *device) int {
		return cmp.Or(cmp.Compare(a.chip, b.chip), cmp.Compare(a.region, b.region))
	})
	return list
}

// write writes a segment. Its blocks have no addresses: they follow each other, and what is free
// is a block too.
func (s *segment) write(p *pickle) {
	slices.SortFunc(s.blocks, func(a, b *block) int { return cmp.Compare(a.address, b.address) })
	var blocks []*block
	var used, at uint64 = 0, s.first
	add := func(b *block) {
		if b.size > 0 {
			blocks = append(blocks, b)
			at += b.size
		}
	}
	for _, b := range s.blocks {
		if b.address >= at { // else it overlaps another process's buffer
			add(&block{size: b.address - at})
			add(b)
			used += b.size
		}
	}
	add(&block{size: s.last - min(at, s.last)})
	p.op(opEmptyDict, opMark)
	number := func(key string, n uint64) {
		p.text(key)
		p.number(n)
	}
	number("device", uint64(s.device))
	number("address", s.first)
	number("total_size", s.last-s.first)
	number("allocated_size", used)
	number("active_size", used)
	number("stream", 0)
	p.text("segment_type")
	p.text("large")
	p.text("segment_pool_id")
	p.list(2, func(int) { p.number(0) })
	p.text("blocks")
	p.list(len(blocks), func(i int) {
		b := blocks[i]
		p.op(opEmptyDict, opMark)
		number("size", b.size)
		number("requested_size", b.requested)
		p.text("state")
		if b.devices == nil {
			p.text("inactive")
		} else {
			p.text("active_allocated")
			p.get(keyFrames)
			p.get(b.stack)
		}
		p.op(opSetItems)
	})
	p.op(opSetItems)
}
