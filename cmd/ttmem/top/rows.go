package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A row adds up holdings with the same key.
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
	// pids and devices are those of its holdings, each once.
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

// shownRegions are the regions in the order of the filter key.
var shownRegions = []event.Region{event.DRAM, event.L1, event.CB, event.L1Small, event.Trace, event.SystemMemory}

// A grouping is one way to make rows.
type grouping struct {
	name string
	// stack is true if a row has one call stack, which can be shown.
	stack bool
	// mixed is true if a row may have both buffers and circular buffers.
	mixed bool
	// keys returns the keys of the rows that a holding is in, which are also their titles.
	keys func(g *groups, h *aggregate.CallSite) []string
}

var groupings = []grouping{
	{"stack", true, false, func(g *groups, h *aggregate.CallSite) []string { return []string{g.stackKey(h)} }},
	{"op", false, true, func(g *groups, h *aggregate.CallSite) []string {
		return []string{cmp.Or(g.sites.of(h.Stack).name.Op, g.unknown(h))}
	}},
	{"component", false, true, func(g *groups, h *aggregate.CallSite) []string {
		return []string{cmp.Or(g.sites.of(h.Stack).component, g.unknown(h))}
	}},
	{"file", false, true, func(g *groups, h *aggregate.CallSite) []string {
		return []string{cmp.Or(g.sites.of(h.Stack).name.Call.File, g.unknown(h))}
	}},
	{"type", false, false, func(_ *groups, h *aggregate.CallSite) []string {
		kind := h.Layout.String()
		if h.Static != event.NotStatic {
			kind = h.Static.String()
		}
		return []string{h.Region.String() + " " + strings.ReplaceAll(kind, "_", " ")}
	}},
	{"size", false, false, func(_ *groups, h *aggregate.CallSite) []string {
		if h.EachBytes == 0 {
			return []string{"various sizes"}
		}
		return []string{page.Bytes(h.EachBytes) + " on each chip"}
	}},
	{"process", false, true, func(g *groups, h *aggregate.CallSite) []string { return []string{g.process(h.PID)} }},
	{"chip", false, true, func(_ *groups, h *aggregate.CallSite) (keys []string) {
		for _, id := range h.Devices {
			keys = append(keys, fmt.Sprintf("chip %d", id))
		}
		return keys
	}},
}

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
	names   map[int]string // of processes
}

// A filter selects holdings. The zero value selects everything.
type filter struct {
	chips  []int
	pid    int
	region int // one of shownRegions, plus 1
	text   string
	// in is the key of the opened row, and inBy its grouping.
	in   string
	inBy int
}

// rows returns the live holdings by a grouping, in an order.
func (g *groups) rows(by, order int, reversed bool) []*row {
	one := &groupings[by]
	rows := make(map[string]*row)
	var pattern = patternOf(g.filter.text)
	for i := range g.present.Holdings {
		h := &g.present.Holdings[i]
		on := g.chips(h)
		if h.Count == 0 && !(order == byRate && i < len(g.present.rates) && g.present.rates[i] > 0) {
			continue // all was freed, and that is what is asked for only by rate
		}
		if on == 0 || !g.wants(h) || g.filter.text != "" && !g.sites.match(h.Stack, g.filter.text, pattern) {
			continue
		}
		for _, key := range one.keys(g, h) {
			chips := on
			if one.name == "chip" {
				if !g.isOn(key) {
					continue
				}
				chips = 1
			}
			r := rows[key]
			if r == nil {
				r = &row{key: key, title: key}
				if one.stack {
					s := g.sites.of(h.Stack)
					r.stack, r.name, r.caller = h.Stack, s.name, s.caller
					r.title = cmp.Or(r.name.String(), g.unknown(h))
				}
				rows[key] = r
			}
			rate := 0.0
			if i < len(g.present.rates) {
				rate = g.present.rates[i]
			}
			r.add(h, uint64(chips), rate)
		}
	}
	if one.stack {
		tellApart(rows)
	}
	list := slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(orders[order].compare(a, b), cmp.Compare(b.total(), a.total()), cmp.Compare(a.title, b.title), cmp.Compare(a.key, b.key))
	})
	if reversed {
		slices.Reverse(list)
	}
	return list
}

// tellApart marks the rows that have the same name as another.
func tellApart(rows map[string]*row) {
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

// wants reports whether the filter selects a holding, apart from its chips and text.
func (g *groups) wants(h *aggregate.CallSite) bool {
	f := &g.filter
	if f.pid != 0 && h.PID != f.pid || f.region > 0 && h.Region != shownRegions[f.region-1] {
		return false
	}
	return f.in == "" || slices.Contains(groupings[f.inBy].keys(g, h), f.in)
}

// chips returns the number of selected chips that a holding is on; 1 if its chips are not
// known.
func (g *groups) chips(h *aggregate.CallSite) int {
	if len(g.filter.chips) == 0 {
		return max(1, len(h.Devices))
	}
	n := 0
	for _, id := range h.Devices {
		if slices.Contains(g.filter.chips, id) {
			n++
		}
	}
	return n
}

// isOn reports whether the chip of a key is selected.
func (g *groups) isOn(key string) bool {
	var id int
	_, _ = fmt.Sscanf(key, "chip %d", &id)
	return len(g.filter.chips) == 0 || slices.Contains(g.filter.chips, id)
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

// stackKey returns the key of a call stack. Stacks with the same lines have the same key.
func (g *groups) stackKey(h *aggregate.CallSite) string {
	if h.Stack == nil {
		return g.unknown(h)
	}
	return g.sites.of(h.Stack).key
}

// unknown returns the text for something that a stack does not show.
func (g *groups) unknown(h *aggregate.CallSite) string {
	switch {
	case h.BeforeAttach:
		return "allocated before ttmem attached"
	case h.Stack == nil:
		return "(no call stack)"
	}
	return "(unknown code)"
}

// process returns the name of a process.
func (g *groups) process(pid int) string {
	if g.names == nil {
		g.names = make(map[int]string)
		for i := range g.present.Processes {
			if p := &g.present.Processes[i]; p.Exit == nil {
				g.names[p.PID] = processName(p)
			}
		}
	}
	return strings.TrimSpace(fmt.Sprintf("PID %d %s", pid, g.names[pid]))
}

// processName returns the command line without directories, or the name of a thread.
func processName(p *aggregate.Process) string {
	words := strings.Fields(p.Command)
	for i, word := range words {
		if !strings.HasPrefix(word, "-") && !strings.ContainsAny(word, "=:") && !strings.HasSuffix(word, "/") {
			words[i] = word[strings.LastIndexByte(word, '/')+1:]
		}
	}
	return cmp.Or(strings.Join(words, " "), p.Comm)
}
