package top

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row adds up call sites with the same key.
type row struct {
	key, title string
	// site is the call stack of a row that has only one.
	site *site
	// folded is true if the row adds up stacks with the same name, which have so many callers.
	folded  bool
	callers int
	// twin is true if another row has the same name, so that the caller is shown too.
	twin bool
	// bytes is the use of all banks of their chips by count buffers. static is the use by statics
	// circular buffers on the core where it is highest, because programs use the same space in
	// turn; sites are the sites of circular buffers.
	bytes, static  uint64
	count, statics uint64
	sites          []*memory.CallSite
	// chips are its selected chips.
	chips []int
	// grown is the part of bytes that was allocated after the mark, and grownStatics the number
	// of circular buffers allocated after it.
	grown, grownStatics uint64
	// rate is allocations per second.
	rate  float64
	since uint64 // ns; 0: not known
	// regions, pids and devices are the values of its call sites, each once.
	regions       []event.Region
	pids, devices []int
}

// perCore returns the use by the row's circular buffers on the core of a chip where it is
// highest.
func (r *row) perCore() (most uint64) {
	for i, id := range r.chips {
		if i > 0 && !slices.ContainsFunc(r.sites, func(h *memory.CallSite) bool { return !slices.Equal(h.Devices, r.sites[0].Devices) }) {
			break // all chips have the same
		}
		var u cores.Usage
		for _, h := range r.sites {
			if slices.Contains(h.Devices, id) {
				for _, p := range h.Places {
					u.Add(p)
				}
			}
		}
		most = max(most, u.Max())
	}
	return most
}

// region returns the short name of the only region, or says that there are several.
func (r *row) region() string {
	if len(r.regions) > 1 {
		return "mixed"
	}
	return regionNames[r.regions[0]]
}

// regionNames are short names of the regions.
var regionNames = map[event.Region]string{
	event.DRAM: "DRAM", event.L1: "L1", event.CB: "CB", event.L1Small: "small", event.Trace: "trace", event.SystemMemory: "host",
}

// groupings are the ways to make rows: the values of --by, and by size.
var groupings = []string{"stack", "op", "line", "component", "file", "type", "size", "process", "chip"}

// byStack is the grouping whose rows have one call stack, which can be shown, or are folded.
const byStack = 0

// mixed reports whether a row may have both buffers and circular buffers.
func mixed(by int) bool { return !slices.Contains([]string{"stack", "type", "size"}, groupings[by]) }

// An order is an order of rows, and the column by which it sorts.
type order struct {
	name, column string
	compare      func(a, b *row) int
}

var orders = []order{
	{"size", "ALL BANKS", func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.static, a.static))
	}},
	{"count", "BUFFERS", func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.statics, a.statics))
	}},
	{"growth", "GROWTH", func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.grown, a.grown), cmp.Compare(b.grownStatics, a.grownStatics))
	}},
	{"rate", "RATE/s", func(a, b *row) int { return cmp.Compare(b.rate, a.rate) }},
	{"age", "FOR", func(a, b *row) int { return cmp.Compare(a.since-1, b.since-1) }}, // not known is last
	{"name", "", func(a, b *row) int { return cmp.Compare(a.title, b.title) }},
}

// The orders that the view sets itself.
const (
	bySize   = 0
	byGrowth = 2
	byRate   = 3
)

// An arrangement is a selection of rows and their order.
type arrangement struct {
	by, order int
	reversed  bool
	filter    filter
}

// A filter selects call sites. The zero value selects everything.
type filter struct {
	chips  []int
	pid    int
	region int // one of alloc.Regions, plus 1
	text   string
	// in is the key of the opened row, and inBy its grouping. With byStack, in is the name of a
	// folded row.
	in   string
	inBy int
}

// rows returns the live call sites of a Present by a grouping, in an order.
func (p *Present) rows(v *arrangement) []*row {
	f := &v.filter
	names := &alloc.Namer{Snap: p.Snapshot}
	selected := alloc.Filter{Devices: f.chips}
	if f.pid != 0 {
		selected.PIDs = []int{f.pid}
	}
	if f.region > 0 {
		selected.Regions = []event.Region{alloc.Regions[f.region-1]}
	}
	rows := make(map[string]*row)
	pattern := patternOf(f.text)
	for i := range p.CallSites {
		h, rate := &p.CallSites[i], p.rates[i]
		if h.Count == 0 && !(v.order == byRate && rate > 0) {
			continue // everything was freed, and only the order by rate shows such sites
		}
		a, ok := selected.Select(rowOf(h))
		s := p.sites[memory.StackID(h.Stack)]
		if !ok || f.text != "" && !s.match(f.text, pattern) {
			continue
		}
		a.Site = s.Site
		if !f.isIn(names, h, s, &a) {
			continue
		}
		keys := rowKeys(v.by, names, h, s, &a)
		for i, key := range keys {
			of := a.Devices
			if groupings[v.by] == "chip" && len(of) > 0 {
				of = of[i : i+1]
			}
			r := rows[key]
			if r == nil {
				r = &row{key: key, title: key, site: &site{Site: &alloc.Site{}}}
				if v.by == byStack {
					r.site, r.title = s, cmp.Or(s.Name.String(), alloc.Unknown(h.Stack, h.BeforeAttach))
				}
				rows[key] = r
			}
			r.add(h, of, rate)
		}
	}
	if v.by == byStack && f.in == "" {
		foldStacks(rows)
	}
	for _, r := range rows {
		if len(r.sites) > 0 {
			r.static = r.perCore()
		}
	}
	if v.by == byStack {
		markTwins(rows)
	}
	list := slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(orders[v.order].compare(a, b), orders[bySize].compare(a, b), cmp.Compare(a.title, b.title), cmp.Compare(a.key, b.key))
	})
	if v.reversed {
		slices.Reverse(list)
	}
	return list
}

// isIn reports whether a call site is part of the opened row.
func (f *filter) isIn(names *alloc.Namer, h *memory.CallSite, s *site, a *alloc.Row) bool {
	switch {
	case f.in == "":
		return true
	case f.inBy == byStack:
		return s.Name.String() == f.in
	}
	return slices.Contains(rowKeys(f.inBy, names, h, s, a), f.in)
}

// patternOf returns the regular expression of a text. It is case-sensitive only if the text has
// capitals. A text that is not a regular expression stands for itself.
func patternOf(text string) *regexp.Regexp {
	flags := ""
	if strings.ToLower(text) == text {
		flags = "(?i)"
	}
	pattern, err := regexp.Compile(flags + text)
	if err != nil {
		pattern = regexp.MustCompile(flags + regexp.QuoteMeta(text))
	}
	return pattern
}

// rowOf returns a call site as a row, which pages select and name.
func rowOf(h *memory.CallSite) alloc.Row {
	layout := h.Layout.String()
	if h.Static != event.NotStatic {
		layout = h.Static.String()
	}
	return alloc.Row{
		Devices: h.Devices, Region: h.Region, PID: h.PID, BeforeAttach: h.BeforeAttach, Layout: strings.ReplaceAll(layout, "_", " "),
	}
}

// rowKeys returns the keys of the rows of a call site, which are also their titles.
func rowKeys(by int, names *alloc.Namer, h *memory.CallSite, s *site, a *alloc.Row) []string {
	switch {
	case by == byStack:
		return []string{cmp.Or(s.key, alloc.Unknown(nil, h.BeforeAttach))}
	case groupings[by] != "size":
		return alloc.GroupingOf(groupings[by]).Keys(names, a)
	case h.EachBytes == 0:
		return []string{"various sizes"}
	}
	return []string{page.Bytes(h.EachBytes) + " on each chip"}
}

// markTwins marks the rows that have the same name as another.
func markTwins(rows map[string]*row) {
	first := make(map[name.Name]*row)
	for _, r := range rows {
		switch other := first[r.site.Name]; {
		case other == nil:
			first[r.site.Name] = r
		case other.site.caller != r.site.caller:
			r.twin, other.twin = true, true
		}
	}
}

// add adds a call site with its memory on some chips.
func (r *row) add(h *memory.CallSite, on []int, rate float64) {
	chips := uint64(max(1, len(on)))
	for _, id := range on {
		r.chips = with(r.chips, id)
	}
	if h.Static != event.NotStatic {
		r.statics += h.Count
		r.grownStatics += h.Fresh.Count
		r.sites = append(r.sites, h)
	} else {
		r.count += h.Count
		r.bytes += h.Bytes * chips
		r.grown += h.Fresh.Bytes * chips
	}
	r.rate += rate
	if !h.BeforeAttach && (r.since == 0 || h.SinceNs < r.since) {
		r.since = h.SinceNs
	}
	r.regions, r.pids = with(r.regions, h.Region), with(r.pids, h.PID)
	for _, id := range h.Devices {
		r.devices = with(r.devices, id)
	}
}

// with adds one to the list unless the list has it.
func with[T comparable](list []T, one T) []T {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}
