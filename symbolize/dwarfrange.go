package symbolize

// maxRanges is how many ranges one entry may have.
const maxRanges = 1 << 16

// address is an attribute that is an address, 0 if it is none.
func (d *debugInfo) address(u *unit, v value) uint64 {
	switch v.kind {
	case kindAddr:
		return v.n
	case kindAddrIndex:
		return d.addressAt(u, v.n)
	}
	return 0
}

// addressAt is an address of the unit's part of .debug_addr.
func (d *debugInfo) addressAt(u *unit, index uint64) uint64 {
	if index > d.addrs.size/8 {
		return 0
	}
	b, err := d.addrs.part(u.addrBase+index*8, 8)
	if err != nil {
		return 0
	}
	c := cursor{window: b, end: 8, s: &d.addrs}
	return c.uint(8)
}

// eachRange calls f with the ranges of addresses of an entry's code, until f is
// false.
func (d *debugInfo) eachRange(u *unit, e *entry, f func(low, high uint64) bool) {
	emit := func(low, high uint64) bool {
		return low >= high || low == 0 || f(low, high)
	}
	if e.ranges.kind != kindNone {
		d.rangeList(u, e.ranges, emit)
		return
	}
	low := d.address(u, e.low)
	switch e.high.kind {
	case kindConst: // since DWARF 4 how long it is
		if high := low + e.high.n; high > low {
			emit(low, high)
		}
	case kindAddr, kindAddrIndex:
		emit(low, d.address(u, e.high))
	}
}

func (d *debugInfo) rangeList(u *unit, v value, emit func(low, high uint64) bool) {
	if u.version < 5 {
		d.oldRanges(u, v.n, emit)
		return
	}
	at := v.n
	if v.kind == kindRangeIndex {
		if at > d.rangeLists.size {
			return
		}
		c := d.rangeLists.cursor(u.rangesBase+at*u.offsetSize, d.rangeLists.size)
		at = u.rangesBase + c.uint(u.offsetSize)
		if c.bad {
			return
		}
	}
	c, base := d.rangeLists.cursor(at, d.rangeLists.size), u.low
	for range maxRanges {
		var low, high uint64
		switch c.u8() { // DWARF 5, 7.25
		case 0: // end_of_list, or the end of the section
			return
		case 1: // base_addressx
			base = d.addressAt(u, c.uleb())
			continue
		case 2: // startx_endx
			low = d.addressAt(u, c.uleb())
			high = d.addressAt(u, c.uleb())
		case 3: // startx_length
			low = d.addressAt(u, c.uleb())
			high = low + c.uleb()
		case 4: // offset_pair
			low = base + c.uleb()
			high = base + c.uleb()
		case 5: // base_address
			base = c.uint(8)
			continue
		case 6: // start_end
			low, high = c.uint(8), c.uint(8)
		case 7: // start_length
			low = c.uint(8)
			high = low + c.uleb()
		default:
			return
		}
		if c.bad || !d.work(1) || !emit(low, high) {
			return
		}
	}
}

// oldRanges reads .debug_ranges, as versions before DWARF 5 have it.
func (d *debugInfo) oldRanges(u *unit, at uint64, emit func(low, high uint64) bool) {
	c, base := d.ranges.cursor(at, d.ranges.size), u.low
	for range maxRanges {
		low, high := c.uint(8), c.uint(8)
		switch {
		case c.bad || low == 0 && high == 0 || !d.work(1):
			return
		case low == 1<<64-1:
			base = high
		case !emit(base+low, base+high):
			return
		}
	}
}
