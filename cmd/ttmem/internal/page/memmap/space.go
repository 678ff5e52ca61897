package memmap

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A regionMap is one region of chips that use it in the same way.
type regionMap struct {
	devices []int
	board   string
	nowNs   uint64
	Space   *memory.Space
	// start and end are the drawn range: the region or, if its range is not known, from the first
	// to the last buffer.
	start, end uint64
	Statics    []memory.Static // of L1, in order of their addresses
}

// alike reports whether the region of other chips is used in the same way, by the same
// buffers.
func (r *regionMap) alike(o *regionMap) bool {
	return r.Space.Region == o.Space.Region && r.board == o.board && r.start == o.start && r.end == o.end &&
		slices.EqualFunc(r.Space.Blocks, o.Space.Blocks, func(a, b memory.Buffer) bool {
			return a.PID == b.PID && a.BufferID == b.BufferID && a.Address == b.Address
		}) &&
		slices.EqualFunc(r.Statics, o.Statics, func(a, b memory.Static) bool {
			return a.PID == b.PID && a.ProgramID == b.ProgramID && a.Address == b.Address && a.BytesPerCore == b.BytesPerCore
		})
}

// scattered reports whether a buffer's addresses differ from core to core.
func (r *regionMap) scattered() bool {
	return slices.ContainsFunc(r.Space.Blocks, func(b memory.Buffer) bool { return b.Scattered() })
}

// fragmentation is the part of the free bytes outside the largest hole.
func (r *regionMap) fragmentation() float64 {
	if r.Space.FreeBytesPerBank == 0 {
		return 0
	}
	return 1 - float64(r.Space.LargestFreeBytesPerBank)/float64(r.Space.FreeBytesPerBank)
}

// A row is a buffer; a hole, which has neither a Buffer nor a Static; or a place of circular
// buffers, with the first of them as Static.
type row struct {
	Address, BytesPerBank uint64
	Buffer                *memory.Buffer
	Static                *memory.Static
	// programs is the number of programs with circular buffers there.
	programs int
}

// allocation is the row of a buffer, or of the first of circular buffers, as lists have it. There may be a
// million rows, so that it is made when it is written.
func (r *row) allocation(names *alloc.Namer, nowNs uint64) *alloc.Row {
	if b := r.Buffer; b != nil {
		return &alloc.Row{
			Buffer: b, Region: b.Region, PID: b.PID, SinceNs: b.SinceNs, NowNs: nowNs, BeforeAttach: b.BeforeAttach, Owner: b.Owner, Site: names.Site(b.Stack),
		}
	}
	return &alloc.Row{Static: r.Static, SinceNs: r.Static.SinceNs, NowNs: nowNs, BeforeAttach: r.Static.BeforeAttach, Site: names.Site(r.Static.Stack)}
}

// free reports whether it is a hole.
func (r *row) free() bool { return r.Buffer == nil && r.Static == nil }

// rows are all rows, in order of addresses.
func (r *regionMap) rows() []*row {
	rows := slices.Grow(r.staticRows(), len(r.Space.Blocks)+len(r.Space.Holes))
	for i := range r.Space.Blocks {
		b := &r.Space.Blocks[i]
		rows = append(rows, &row{Address: b.Address, BytesPerBank: b.BytesPerBank, Buffer: b})
	}
	for _, h := range r.Space.Holes {
		rows = append(rows, &row{Address: h.Address, BytesPerBank: h.Bytes})
	}
	// of rows at the same address, buffers come first
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), memory.CompareBools(a.Static == nil, b.Static == nil))
	})
	return rows
}

// staticRows returns the places of circular buffers. Adjacent ones are one place, because
// programs use them one after the other.
func (r *regionMap) staticRows() []*row {
	var rows []*row
	type programOf struct {
		pid int
		id  uint64
	}
	programs := make(map[programOf]bool)
	for i := range r.Statics {
		s := &r.Statics[i]
		last := len(rows) - 1
		if last < 0 || s.Address > rows[last].Address+rows[last].BytesPerBank {
			clear(programs)
			rows = append(rows, &row{Static: s, Address: s.Address, BytesPerBank: s.BytesPerCore})
			last++
		}
		row := rows[last]
		row.BytesPerBank = max(row.BytesPerBank, s.End()-row.Address)
		programs[programOf{s.PID, s.ProgramID}] = true
		row.programs = len(programs)
	}
	return rows
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
		cover(b.Address, b.End(), func(c *cell, bytes uint64) {
			if b.PerCore { // drawn as partly used: other banks have nothing there
				c.part = true
				return
			}
			c.used += bytes
		})
	}
	for _, row := range r.staticRows() {
		cover(row.Address, row.Address+row.BytesPerBank, func(c *cell, bytes uint64) { c.static += bytes })
	}
	return cells
}

// zooms returns ranges of addresses to draw again, enlarged: those beside a hole that takes most
// of the map.
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
