package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row adds up call sites with the same key.
type row struct {
	key string
	// title is the title of the row. name is that of its call stack, if it has only one.
	title string
	name  name.Name
	// caller is the user's own call around the one in name.
	caller name.Call
	// twin is true if another row has the same name, so that caller is shown too.
	twin bool
	// bytes is what count buffers occupy in all banks of their chips. static is what
	// statics circular buffers occupy on all cores, added up over programs, although these
	// use the same space one after the other.
	bytes, static  uint64
	count, statics uint64
	// grown is the part of bytes and static that was allocated after the mark.
	grown uint64
	// rate is allocations per second.
	rate    float64
	since   uint64 // ns; 0: not known
	regions regionSet
	// pids and devices are those of its call sites, each once.
	pids, devices []int
	stack         *event.Stack // of one stack: the first
}

// total returns the bytes that rows are ordered by.
func (r *row) total() uint64 { return r.bytes + r.static }

// regionSet is a set of regions.
type regionSet uint16

func (s *regionSet) add(r event.Region) { *s |= 1 << r }

// String returns the short name of the only region, or says that there are several.
func (s regionSet) String() string {
	for r, name := range regionNames {
		if s == 1<<r {
			return name
		}
	}
	if s == 0 {
		return ""
	}
	return "mixed"
}

// regionNames are short names of the regions.
var regionNames = map[event.Region]string{
	event.DRAM: "DRAM", event.L1: "L1", event.CB: "CB", event.L1Small: "small", event.Trace: "trace", event.SystemMemory: "host",
}

// groupings are the ways to make rows: the values of --by, and by size.
var groupings = []string{"stack", "op", "component", "file", "type", "size", "process", "chip"}

// byStack is the grouping whose rows have one call stack each, which can be shown.
const byStack = 0

// mixed reports whether a row may have both buffers and circular buffers.
func mixed(by int) bool { return !slices.Contains([]string{"stack", "type", "size"}, groupings[by]) }

// An order is an order of rows.
type order struct {
	name    string
	compare func(a, b *row) int
}

var orders = []order{
	{"size", func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.static, a.static))
	}},
	{"count", func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.statics, a.statics))
	}},
	{"growth", func(a, b *row) int { return cmp.Compare(b.grown, a.grown) }},
	{"rate", func(a, b *row) int { return cmp.Compare(b.rate, a.rate) }},
	{"age", func(a, b *row) int { return cmp.Compare(a.since-1, b.since-1) }}, // not known is last
	{"name", func(a, b *row) int { return cmp.Compare(a.title, b.title) }},
}

// The orders that the view sets itself.
const (
	bySize   = 0
	byGrowth = 2
	byRate   = 3
)

// groups makes rows of a Present.
type groups struct {
	present *Present
	sites   *sites
	filter  filter
	names   alloc.Namer // of processes
}

// A filter selects call sites. The zero value selects everything.
type filter struct {
	chips  []int
	pid    int
	region int // one of alloc.Regions, plus 1
	text   string
	// in is the key of the opened row, and inBy its grouping.
	in   string
	inBy int
}

// rows returns the live call sites by a grouping, in an order.
func (g *groups) rows(by, order int, reversed bool) []*row {
	g.names.Snap = g.present.Snapshot
	selected := alloc.Filter{Devices: g.filter.chips}
	if g.filter.pid != 0 {
		selected.PIDs = []int{g.filter.pid}
	}
	if g.filter.region > 0 {
		selected.Regions = []event.Region{alloc.Regions[g.filter.region-1]}
	}
	rows := make(map[string]*row)
	pattern := patternOf(g.filter.text)
	for i := range g.present.CallSites {
		h := &g.present.CallSites[i]
		rate := 0.0
		if i < len(g.present.rates) {
			rate = g.present.rates[i]
		}
		if h.Count == 0 && !(order == byRate && rate > 0) {
			continue // all was freed, and that is what is asked for only by rate
		}
		a, ok := selected.Select(rowOf(h))
		if !ok || g.filter.text != "" && !g.sites.match(h.Stack, g.filter.text, pattern) {
			continue
		}
		s := g.sites.of(h.Stack)
		a.Site = &s.Site
		if g.filter.in != "" && !slices.Contains(g.keys(g.filter.inBy, h, &a), g.filter.in) {
			continue
		}
		keys := g.keys(by, h, &a)
		for _, key := range keys {
			r := rows[key]
			if r == nil {
				r = &row{key: key, title: key}
				if by == byStack {
					r.stack, r.name, r.caller = h.Stack, s.Name, s.caller
					r.title = cmp.Or(r.name.String(), alloc.Unknown(h.Stack, h.BeforeAttach))
				}
				rows[key] = r
			}
			r.add(h, uint64(max(1, len(a.Devices)/len(keys))), rate)
		}
	}
	if by == byStack {
		markTwins(rows)
	}
	list := slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(orders[order].compare(a, b), cmp.Compare(b.total(), a.total()), cmp.Compare(a.title, b.title), cmp.Compare(a.key, b.key))
	})
	if reversed {
		slices.Reverse(list)
	}
	return list
}

// rowOf is a call site as pages select and name it.
func rowOf(h *aggregate.CallSite) alloc.Row {
	layout := h.Layout.String()
	if h.Static != event.NotStatic {
		layout = h.Static.String()
	}
	return alloc.Row{
		Devices: h.Devices, Region: h.Region, PID: h.PID, BeforeAttach: h.BeforeAttach, Layout: strings.ReplaceAll(layout, "_", " "),
	}
}

// keys returns the keys of the rows that a call site is in, which are also their titles.
func (g *groups) keys(by int, h *aggregate.CallSite, a *alloc.Row) []string {
	switch {
	case by == byStack:
		return []string{cmp.Or(g.sites.of(h.Stack).key, alloc.Unknown(nil, h.BeforeAttach))}
	case groupings[by] != "size":
		return alloc.GroupingOf(groupings[by]).Keys(&g.names, a)
	case h.EachBytes == 0:
		return []string{"various sizes"}
	}
	return []string{page.Bytes(h.EachBytes) + " on each chip"}
}

// markTwins marks the rows that have the same name as another.
func markTwins(rows map[string]*row) {
	first := make(map[name.Name]*row)
	for _, r := range rows {
		switch other := first[r.name]; {
		case other == nil:
			first[r.name] = r
		case other.caller != r.caller:
			r.twin, other.twin = true, true
		}
	}
}

func (r *row) add(h *aggregate.CallSite, chips uint64, rate float64) {
	if h.Static != event.NotStatic {
		r.statics += h.Count
		r.static += h.Bytes * chips
	} else {
		r.count += h.Count
		r.bytes += h.Bytes * chips
	}
	r.grown += h.Fresh.Bytes * chips
	r.rate += rate
	if !h.BeforeAttach && (r.since == 0 || h.SinceNs < r.since) {
		r.since = h.SinceNs
	}
	r.regions.add(h.Region)
	if !slices.Contains(r.pids, h.PID) {
		r.pids = append(r.pids, h.PID)
	}
	for _, id := range h.Devices {
		if !slices.Contains(r.devices, id) {
			r.devices = append(r.devices, id)
		}
	}
}
