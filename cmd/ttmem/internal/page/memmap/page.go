// Package memmap draws the address space of regions: buffers and holes.
package memmap

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// Regions are the regions that have banks, in the order in which they are shown.
var Regions = []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace}

// A Page is the maps of regions at a moment.
type Page struct {
	// Of is its moment and place: "at the end of model.ttmem".
	Of     string
	Names  *alloc.Namer // of call stacks
	Notes  []string
	Others string // describes the memory of other users
	// Ended is the file whose end is drawn, at which everything may be freed.
	Ended    string
	Snapshot *memory.Snapshot
	Losses   memory.AllLosses
	// Regions and Chips select the maps; all if there are none.
	Regions []event.Region
	Chips   []int
	Limit   int
	// AtPeak leaves out the circular buffers of programs that do not run at this moment.
	AtPeak bool
	// Clock relates times to the wall clock. With UTC, the moment of each region is printed.
	Clock page.Clock
	UTC   bool
	Maps  []*regionMap
}

// Add adds the wanted regions of a state, and returns its snapshot.
func (m *Page) Add(s *aggregate.State, nowNs uint64, wanted func(device int, region event.Region) bool) *memory.Snapshot {
	snap := s.Snapshot()
	for _, region := range Regions {
		if len(m.Regions) > 0 && !slices.Contains(m.Regions, region) {
			continue
		}
		for i := range snap.Devices {
			d := &snap.Devices[i]
			if wanted(d.ID, region) && (len(m.Chips) == 0 || slices.Contains(m.Chips, d.ID)) {
				m.addRegion(s, nowNs, d, region)
			}
		}
	}
	return snap
}

func (m *Page) addRegion(s *aggregate.State, nowNs uint64, d *memory.Device, region event.Region) {
	r := &regionMap{devices: []int{d.ID}, board: cmp.Or(page.Clean(d.Board), page.Clean(d.Arch)), nowNs: nowNs, Space: s.Space(d.ID, region)}
	if r.Space == nil {
		return
	}
	if region == event.L1 {
		for _, one := range s.Statics(d.ID) {
			if !one.Global && (!m.AtPeak || s.Runs(&one, d.ID)) {
				r.Statics = append(r.Statics, one)
			}
		}
		slices.SortStableFunc(r.Statics, func(a, b memory.Static) int { return cmp.Compare(a.Address, b.Address) })
	}
	// an empty region is drawn only if it is selected
	if len(r.Space.Blocks)+len(r.Statics) == 0 && (len(m.Regions) == 0 || !r.Space.Known()) {
		return
	}
	r.start, r.end = r.Space.Start, r.Space.End
	if !r.Space.Known() {
		r.start = ^uint64(0)
	}
	for i := range r.Space.Blocks {
		if b := &r.Space.Blocks[i]; !b.Scattered() {
			r.start, r.end = min(r.start, b.Address), max(r.end, b.End())
		}
	}
	for i := range r.Statics {
		r.start, r.end = min(r.start, r.Statics[i].Address), max(r.end, r.Statics[i].End())
	}
	r.start = min(r.start, r.end)
	for _, other := range m.Maps {
		if other.alike(r) {
			other.devices = append(other.devices, d.ID)
			return
		}
	}
	m.Maps = append(m.Maps, r)
}

// order sorts the maps by chip and region.
func (m *Page) order() {
	slices.SortStableFunc(m.Maps, func(a, b *regionMap) int {
		return cmp.Or(cmp.Compare(a.devices[0], b.devices[0]),
			cmp.Compare(slices.Index(Regions, a.Space.Region), slices.Index(Regions, b.Space.Region)))
	})
}

// title returns the name of a row, of which the allocation is.
func (m *Page) title(row *row, a *alloc.Row, separator string) string {
	title := m.Names.Title(a, separator)
	if row.Static != nil {
		return "CBs, DFBs of " + page.Count(uint64(row.programs), "program") + separator + title
	}
	return title
}
