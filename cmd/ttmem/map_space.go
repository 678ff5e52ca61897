package main

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A mapPage is the maps of regions.
type mapPage struct {
	// of is when and where they are of: "at the end of model.ttmem".
	of     string
	names  *listing // which names call stacks
	sites  map[*event.Stack]*site
	notes  []string
	others string // of a present
	failed bool
	// ended is true for the end of a file, at which all may be freed.
	ended bool
	snap  *aggregate.Snapshot
	// regions and asked are those to draw; all where there are none.
	regions []event.Region
	asked   []int
	n       int
	maps    []*regionMap
}

// A regionMap is one region of chips on which it is used alike.
type regionMap struct {
	devices []int
	board   string
	nowNs   uint64
	space   *aggregate.Space
	// start and end are what is drawn: the region or, where it is not known where that
	// lies, from the first to the last of what is known.
	start, end uint64
	statics    []aggregate.Static // of L1, in order of their addresses
}

// add adds the regions that are wanted as they are in a state.
func (m *mapPage) add(s *aggregate.State, nowNs uint64, wanted wantedFunc) {
	snap := s.Snapshot()
	for _, region := range mappedRegions {
		if len(m.regions) > 0 && !slices.Contains(m.regions, region) {
			continue
		}
		for i := range snap.Devices {
			d := &snap.Devices[i]
			if wanted(d.ID, region) && (len(m.asked) == 0 || slices.Contains(m.asked, d.ID)) {
				m.addRegion(s, nowNs, d, region)
			}
		}
	}
}

func (m *mapPage) addRegion(s *aggregate.State, nowNs uint64, d *aggregate.Device, region event.Region) {
	r := &regionMap{devices: []int{d.ID}, board: cmp.Or(page.Clean(d.Board), page.Clean(d.Arch)), nowNs: nowNs, space: s.Space(d.ID, region)}
	if r.space == nil {
		return
	}
	if region == event.L1 {
		for _, one := range s.Statics(d.ID) {
			if !one.Global {
				r.statics = append(r.statics, one)
			}
		}
		slices.SortStableFunc(r.statics, func(a, b aggregate.Static) int { return cmp.Compare(a.Address, b.Address) })
	}
	// what has nothing is drawn where it is asked for
	if len(r.space.Blocks)+len(r.statics) == 0 && (len(m.regions) == 0 || !r.space.Known()) {
		return
	}
	r.start, r.end = r.space.Start, r.space.End
	if !r.space.Known() {
		r.start = ^uint64(0)
	}
	for i := range r.space.Blocks {
		b := &r.space.Blocks[i]
		r.start, r.end = min(r.start, b.Address), max(r.end, b.Address+b.BytesPerBank)
	}
	for i := range r.statics {
		b := &r.statics[i]
		r.start, r.end = min(r.start, b.Address), max(r.end, b.Address+b.BytesPerCore)
	}
	for _, other := range m.maps {
		if other.alike(r) {
			other.devices = append(other.devices, d.ID)
			return
		}
	}
	m.maps = append(m.maps, r)
}

// alike reports whether the region of other chips is used in the same way, by the same
// buffers.
func (r *regionMap) alike(o *regionMap) bool {
	return r.space.Region == o.space.Region && r.board == o.board && r.start == o.start && r.end == o.end &&
		slices.EqualFunc(r.space.Blocks, o.space.Blocks, func(a, b aggregate.Held) bool {
			return a.PID == b.PID && a.BufferID == b.BufferID && a.Address == b.Address
		}) &&
		slices.EqualFunc(r.statics, o.statics, func(a, b aggregate.Static) bool {
			return a.PID == b.PID && a.ProgramID == b.ProgramID && a.Address == b.Address && a.BytesPerCore == b.BytesPerCore
		})
}

// order sorts the maps by chip and region.
func (m *mapPage) order() {
	slices.SortStableFunc(m.maps, func(a, b *regionMap) int {
		return cmp.Or(cmp.Compare(a.devices[0], b.devices[0]),
			cmp.Compare(slices.Index(mappedRegions, a.space.Region), slices.Index(mappedRegions, b.space.Region)))
	})
}

// fragmentation is the part of what is free that is outside of the largest hole.
func (r *regionMap) fragmentation() float64 {
	if r.space.FreeBytesPerBank == 0 {
		return 0
	}
	return 1 - float64(r.space.LargestFreeBytesPerBank)/float64(r.space.FreeBytesPerBank)
}

// A mapRow is a buffer, a hole or a place of circular buffers.
type mapRow struct {
	address, bytes uint64
	block          *aggregate.Held   // nil: it is something else
	static         *aggregate.Static // the first there; nil: it is something else
	// programs is how many have circular buffers there.
	programs int
}

// free reports whether it is a hole.
func (r *mapRow) free() bool { return r.block == nil && r.static == nil }

// rows are all that there is, in order of addresses.
func (r *regionMap) rows() []mapRow {
	var rows []mapRow
	for i := range r.space.Blocks {
		b := &r.space.Blocks[i]
		rows = append(rows, mapRow{address: b.Address, bytes: b.BytesPerBank, block: b})
	}
	for _, h := range r.space.Holes {
		rows = append(rows, mapRow{address: h.Address, bytes: h.Bytes})
	}
	rows = append(rows, r.staticRows()...)
	slices.SortStableFunc(rows, func(a, b mapRow) int { return cmp.Compare(a.address, b.address) })
	return rows
}

// staticRows are the places of circular buffers: those that touch are one, as programs
// use them one after the other.
func (r *regionMap) staticRows() []mapRow {
	var rows []mapRow
	type programOf struct {
		pid int
		id  uint64
	}
	programs := make(map[programOf]bool)
	for i := range r.statics {
		s := &r.statics[i]
		last := len(rows) - 1
		if last < 0 || s.Address > rows[last].address+rows[last].bytes {
			clear(programs)
			rows = append(rows, mapRow{address: s.Address, bytes: s.BytesPerCore, static: s})
			last++
		}
		row := &rows[last]
		row.bytes = max(row.bytes, s.Address+s.BytesPerCore-row.address)
		programs[programOf{s.PID, s.ProgramID}] = true
		row.programs = len(programs)
	}
	return rows
}

// site is what there is to know of where a row was allocated; nil where it is a hole.
func (m *mapPage) site(row *mapRow) *site {
	var stack *event.Stack
	switch {
	case row.block != nil:
		stack = row.block.Stack
	case row.static != nil:
		stack = row.static.Stack
	default:
		return nil
	}
	if m.sites == nil {
		m.sites = make(map[*event.Stack]*site)
	}
	s := m.sites[stack]
	if s == nil {
		s = m.names.newSite(stack)
		m.sites[stack] = s
	}
	return s
}

// title is what a row is called.
func (m *mapPage) title(row *mapRow, separator string) string {
	a := allocation{site: m.site(row)}
	if a.site == nil {
		return "free"
	}
	a.before = row.block != nil && row.block.BeforeAttach || row.static != nil && row.static.BeforeAttach
	title := m.names.title(&a, separator)
	if row.static != nil {
		title = "CBs, DFBs of " + page.Count(uint64(row.programs), "program") + separator + title
	}
	return title
}

// age is how long a row has been there; "" where that is not known.
func (r *regionMap) age(row *mapRow) string {
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

// A cell is a part of the addresses that a map has one character for.
type cell struct {
	start, end   uint64
	used, static uint64
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
	for i := range r.space.Blocks {
		b := &r.space.Blocks[i]
		cover(b.Address, b.Address+b.BytesPerBank, func(c *cell, bytes uint64) { c.used += bytes })
	}
	for _, row := range r.staticRows() {
		cover(row.address, row.address+row.bytes, func(c *cell, bytes uint64) { c.static += bytes })
	}
	return cells
}

// zooms are the parts of the addresses that are worth a look of their own: those beside
// a hole that takes most of the map.
func (r *regionMap) zooms() (parts [][2]uint64) {
	for _, h := range r.space.Holes {
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
