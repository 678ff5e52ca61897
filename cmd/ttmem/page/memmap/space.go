package memmap

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// A regionMap is one region of chips that use it in the same way.
type regionMap struct {
	devices []int
	board   string
	nowNs   uint64
	Space   *aggregate.Space
	// start and end are the range that is drawn: the region or, if its range is not known,
	// from the first to the last buffer.
	start, end uint64
	Statics    []aggregate.Static // of L1, in order of their addresses
}

// alike reports whether the region of other chips is used in the same way, by the same
// buffers.
func (r *regionMap) alike(o *regionMap) bool {
	return r.Space.Region == o.Space.Region && r.board == o.board && r.start == o.start && r.end == o.end &&
		slices.EqualFunc(r.Space.Blocks, o.Space.Blocks, func(a, b aggregate.Buffer) bool {
			return a.PID == b.PID && a.BufferID == b.BufferID && a.Address == b.Address
		}) &&
		slices.EqualFunc(r.Statics, o.Statics, func(a, b aggregate.Static) bool {
			return a.PID == b.PID && a.ProgramID == b.ProgramID && a.Address == b.Address && a.BytesPerCore == b.BytesPerCore
		})
}

// scattered reports whether a buffer's addresses differ from core to core.
func (r *regionMap) scattered() bool {
	return slices.ContainsFunc(r.Space.Blocks, func(b aggregate.Buffer) bool { return b.Scattered() })
}

// fragmentation is the part of the free bytes outside the largest hole.
func (r *regionMap) fragmentation() float64 {
	if r.Space.FreeBytesPerBank == 0 {
		return 0
	}
	return 1 - float64(r.Space.LargestFreeBytesPerBank)/float64(r.Space.FreeBytesPerBank)
}

// A row is a buffer, a hole or a place of circular buffers.
type row struct {
	address, bytes uint64
	block          *aggregate.Buffer // nil: it is something else
	static         *aggregate.Static // the first there; nil: it is something else
	// programs is the number of programs with circular buffers there.
	programs int
}

// free reports whether it is a hole.
func (r *row) free() bool { return r.block == nil && r.static == nil }

// rows are all rows, in order of addresses.
func (r *regionMap) rows() []row {
	var rows []row
	for i := range r.Space.Blocks {
		b := &r.Space.Blocks[i]
		rows = append(rows, row{address: b.Address, bytes: b.BytesPerBank, block: b})
	}
	for _, h := range r.Space.Holes {
		rows = append(rows, row{address: h.Address, bytes: h.Bytes})
	}
	rows = append(rows, r.staticRows()...)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.address, b.address) })
	return rows
}

// staticRows are the places of circular buffers: those that touch are one, as programs
// use them one after the other.
func (r *regionMap) staticRows() []row {
	var rows []row
	type programOf struct {
		pid int
		id  uint64
	}
	programs := make(map[programOf]bool)
	for i := range r.Statics {
		s := &r.Statics[i]
		last := len(rows) - 1
		if last < 0 || s.Address > rows[last].address+rows[last].bytes {
			clear(programs)
			rows = append(rows, row{address: s.Address, bytes: s.BytesPerCore, static: s})
			last++
		}
		row := &rows[last]
		row.bytes = max(row.bytes, s.Address+s.BytesPerCore-row.address)
		programs[programOf{s.PID, s.ProgramID}] = true
		row.programs = len(programs)
	}
	return rows
}

// age is how long a row has been live; "" if that is not known.
func (r *regionMap) age(row *row) string {
	var since uint64
	switch {
	case row.block != nil && row.block.BeforeAttach, row.static != nil && row.static.BeforeAttach:
		return "earlier"
	case row.block != nil:
		since = row.block.SinceNs
	case row.static != nil:
		since = row.static.SinceNs
	default:
		return ""
	}
	return page.Seconds(r.nowNs - min(r.nowNs, since))
}

// A cell is the range of addresses of one character of a map.
type cell struct {
	start, end   uint64
	used, static uint64
	part         bool // some banks have a buffer there
}

// cells divide the addresses from start to end.
func (r *regionMap) cells(start, end uint64, n int) []cell {
	span := end - start
	n = int(min(uint64(n), max(span, 1)))
	cells := make([]cell, n)
	border := func(i int) uint64 { return start + uint64(float64(span)*float64(i)/float64(n)) }
	for i := range cells {
		cells[i].start, cells[i].end = border(i), border(i+1)
	}
	cells[n-1].end = end
	at := func(address uint64) int {
		i, found := slices.BinarySearchFunc(cells, address, func(c cell, a uint64) int { return cmp.Compare(c.start, a) })
		if !found {
			i--
		}
		return i
	}
	cover := func(from, to uint64, add func(*cell, uint64)) {
		from, to = max(from, start), min(to, end)
		if from >= to {
			return
		}
		for i := at(from); i < n && cells[i].start < to; i++ {
			add(&cells[i], min(to, cells[i].end)-max(from, cells[i].start))
		}
	}
	for i := range r.Space.Blocks {
		b := &r.Space.Blocks[i]
		cover(b.Address, b.Address+b.BytesPerBank, func(c *cell, bytes uint64) {
			if b.PerCore { // drawn as in part: other banks have nothing there
				c.part = true
				return
			}
			c.used += bytes
		})
	}
	for _, row := range r.staticRows() {
		cover(row.address, row.address+row.bytes, func(c *cell, bytes uint64) { c.static += bytes })
	}
	return cells
}

// zooms are ranges of addresses that are also drawn enlarged: those beside a hole that takes
// most of the map.
func (r *regionMap) zooms() (parts [][2]uint64) {
	for _, h := range r.Space.Holes {
		if h.Bytes < (r.end-r.start)*3/4 {
			continue
		}
		if h.Address > r.start {
			parts = append(parts, [2]uint64{r.start, h.Address})
		}
		if h.Address+h.Bytes < r.end {
			parts = append(parts, [2]uint64{h.Address + h.Bytes, r.end})
		}
	}
	return parts
}
