package top

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A row adds up call sites that look alike.
type row struct {
	alloc.Look
	// site is the call stack of the first one; several is true if the row has others.
	site    *site
	several bool
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
	// holders are who holds the buffers, as far as that is known.
	holders alloc.Holders
	mix     alloc.Mix
}

func newRow(look alloc.Look, h *memory.CallSite, s *site, on []int, rate float64) *row {
	r := &row{
		Look: look, site: s, chips: slices.Clip(on), rate: rate,
		regions: []event.Region{h.Region}, pids: []int{h.PID}, devices: slices.Clip(h.Devices),
	}
	if !h.BeforeAttach {
		r.since = h.SinceNs
	}
	if h.Static != event.NotStatic {
		r.statics, r.grownStatics, r.sites = h.Count, h.Fresh.Count, []*memory.CallSite{h}
		return r
	}
	chips := uint64(max(1, len(on)))
	r.count, r.bytes, r.grown = h.Count, h.Bytes*chips, h.Fresh.Bytes*chips
	return r
}

// Add adds the memory of another row.
func (r *row) Add(other *row) {
	r.several = r.several || other.several || r.site.key != other.site.key
	r.bytes, r.count, r.statics = r.bytes+other.bytes, r.count+other.count, r.statics+other.statics
	r.grown, r.grownStatics, r.rate = r.grown+other.grown, r.grownStatics+other.grownStatics, r.rate+other.rate
	if other.since > 0 && (r.since == 0 || other.since < r.since) {
		r.since = other.since
	}
	r.sites = append(r.sites, other.sites...)
	r.chips, r.devices = union(r.chips, other.chips), union(r.devices, other.devices)
	r.pids, r.regions = union(r.pids, other.pids), union(r.regions, other.regions)
	r.holders.Add(other.holders)
	r.mix.AddAll(other.mix)
}

// union returns the values of both lists, each once.
func union[T comparable](list, more []T) []T {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// perCore returns what the largest of the row's programs has on its fullest core.
func (r *row) perCore() (most uint64) {
	for i, id := range r.chips {
		if i > 0 && !slices.ContainsFunc(r.sites, func(h *memory.CallSite) bool { return !slices.Equal(h.Devices, r.sites[0].Devices) }) {
			break // all chips have the same
		}
		type program struct {
			pid int
			id  uint64
		}
		sums := make(map[program]uint64)
		for _, h := range r.sites {
			if slices.Contains(h.Devices, id) {
				for _, p := range h.Programs {
					sums[program{h.PID, p.ID}] += p.BytesPerCore
				}
			}
		}
		for _, bytes := range sums {
			most = max(most, bytes)
		}
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
var groupings = []string{"stack", "op", "line", "component", "file", "owner", "class", "type", "size", "process", "chip"}

// byStack is the grouping of call stacks.
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
	{"name", "", func(a, b *row) int { return cmp.Compare(a.Text, b.Text) }},
}

// The orders that the view sets itself.
const (
	bySize   = 0
	byGrowth = 2
	byRate   = 3
)

// An arrangement is a selection of rows and their order, and the selected row, which stays selected
// when rows move.
type arrangement struct {
	by, order int
	reversed  bool
	filter    filter
	selected  alloc.Key
}

// isByOwner reports whether call sites are split by owner.
func (v *arrangement) isByOwner() bool {
	return groupings[v.by] == "owner" || v.filter.in != nil && groupings[v.filter.inBy] == "owner"
}

// A filter selects call sites. The zero value selects everything.
type filter struct {
	chips  []int
	pid    int
	region int // one of alloc.Regions, plus 1
	text   string
	// in is the opened row, and inBy its grouping.
	in   *row
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
	var rows []*row
	pattern := patternOf(f.text)
	for i := range p.CallSites {
		h, rate := &p.CallSites[i], p.rates[i]
		if h.Count == 0 && !(v.order == byRate && rate > 0) {
			continue // everything was freed, and only the order by rate shows such sites
		}
		a, ok := selected.Select(alloc.RowOf(&h.Site))
		s := p.sites[memory.StackID(h.Stack)]
		if !ok {
			continue
		}
		a.Site = s.Site
		fresh := h.Fresh // the part without an owner is the last
		for _, part := range p.parts(h, a, v) {
			one := *h
			if one.Amount = part.Amount; part.Amount != h.Amount {
				rate = 0 // it is not known by owner
				if one.Fresh = fresh; len(part.Holders) > 0 {
					one.Fresh = part.Holders.Since(p.MarkNs)
					one.Fresh = memory.Amount{Count: min(one.Fresh.Count, fresh.Count), Bytes: min(one.Fresh.Bytes, fresh.Bytes)}
					fresh.Sub(one.Fresh)
				}
			}
			if f.text != "" && !s.match(f.text, pattern) && !part.Holders.MatchedBy(pattern) && !pattern.MatchString(part.Class().String()) ||
				f.in != nil && !slices.ContainsFunc(looks(f.inBy, names, h, &part.Row, ""), f.in.Has) {
				continue
			}
			stack := ""
			if f.in != nil {
				stack = s.key
			}
			for i, look := range looks(v.by, names, h, &part.Row, stack) {
				of := a.Devices
				if groupings[v.by] == "chip" && len(of) > 0 {
					of = of[i : i+1]
				}
				r := newRow(look, &one, s, of, rate)
				r.holders = part.Holders
				if groupings[v.by] != "class" {
					r.mix.Add(part.Class(), r.count)
				}
				rows = append(rows, r)
			}
		}
	}
	rows = alloc.Fold(rows, v.by == byStack && f.in == nil)
	for _, r := range rows {
		if len(r.sites) > 0 {
			r.static = r.perCore()
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(orders[v.order].compare(a, b), orders[bySize].compare(a, b),
			cmp.Compare(a.Text, b.Text), slices.Compare(a.Callers, b.Callers), cmp.Compare(a.Apart, b.Apart))
	})
	if v.reversed {
		slices.Reverse(rows)
	}
	return rows
}

// parts returns the parts of a call site: without a stack, or by owner, one for each holder.
func (p *Present) parts(h *memory.CallSite, a alloc.Row, v *arrangement) []alloc.Part {
	by := groupings[v.by]
	if v.isByOwner() {
		by = "owner"
	}
	return alloc.Split(a, h.Amount, p.Holders.Split(&h.Site, h.Amount, analyze.Now, false), by)
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

// looks returns the looks of a call site's rows. By stack, the stack keeps rows apart, too, unless
// it is "".
func looks(by int, names *alloc.Namer, h *memory.CallSite, a *alloc.Row, stack string) []alloc.Look {
	var keys []string
	switch {
	case by == byStack:
		return []alloc.Look{names.Look(a, a.Region, stack)}
	case groupings[by] != "size":
		keys = alloc.GroupingOf(groupings[by]).Keys(names, a)
	case h.EachBytes == 0:
		keys = []string{"various sizes"}
	default:
		keys = []string{page.Bytes(h.EachBytes) + " on each chip"}
	}
	return page.Each(keys, func(key string) alloc.Look { return alloc.Look{Key: alloc.Key{Text: key}} })
}
