package top

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// The measures of a row: the use of all banks of its chips by buffers; circular buffers, with the bytes on the
// core where they have most, because programs use the same space in turn; and the parts of both that were
// allocated after the mark, where circular buffers have no bytes.
const (
	live = iota
	statics
	grown
	grownStatics
	measures
)

func amountsOf(h *memory.CallSite, chips int) []memory.Amount {
	amounts := make([]memory.Amount, measures)
	if h.Static != event.NotStatic {
		amounts[statics].Count, amounts[grownStatics].Count = h.Count, h.Fresh.Count
		return amounts
	}
	amounts[live], amounts[grown] = h.Amount, h.Fresh
	amounts[live].Bytes *= uint64(max(1, chips))
	amounts[grown].Bytes *= uint64(max(1, chips))
	return amounts
}

// each returns the values of a row's call sites, each once.
func each[T comparable](r *alloc.Row, values func(*memory.CallSite) []T) (list []T) {
	for _, h := range r.CallSites {
		for _, one := range values(h) {
			if !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
	}
	return list
}

func pids(r *alloc.Row) []int { return each(r, func(h *memory.CallSite) []int { return []int{h.PID} }) }

func devices(r *alloc.Row) []int { return each(r, func(h *memory.CallSite) []int { return h.Devices }) }

// perCore returns what the largest of the row's programs has on its fullest core of the selected chips.
func perCore(r *alloc.Row, chips []int) (most uint64) {
	var sites []*memory.CallSite
	for _, h := range r.CallSites {
		if h.Static != event.NotStatic {
			sites = append(sites, h)
		}
	}
	for i, id := range chips {
		if i > 0 && !slices.ContainsFunc(sites, func(h *memory.CallSite) bool { return !slices.Equal(h.Devices, sites[0].Devices) }) {
			break // all chips have the same
		}
		type program struct {
			pid int
			id  uint64
		}
		sums := make(map[program]uint64)
		for _, h := range sites {
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

// regionOf returns the short name of the only region, or says that there are several.
func regionOf(r *alloc.Row) string {
	list := each(r, func(h *memory.CallSite) []event.Region { return []event.Region{h.Region} })
	if len(list) > 1 {
		return "mixed"
	}
	return regionNames[list[0]]
}

// several reports whether a row has call stacks with different calls.
func (p *Present) several(r *alloc.Row) bool {
	return len(each(r, func(h *memory.CallSite) []string { return []string{p.sites[memory.StackID(h.Stack)].key} })) > 1
}

// regionNames are short names of the regions.
var regionNames = map[event.Region]string{
	event.DRAM: "DRAM", event.L1: "L1", event.CB: "CB", event.L1Small: "small", event.Trace: "trace", event.SystemMemory: "host",
}

// groupings are the ways to make rows: most of the values of --by.
var groupings = []string{"stack", "op", "line", "component", "file", "owner", "class", "type", "size", "process", "chip"}

// byStack is the grouping of call stacks.
const byStack = 0

// mixed reports whether a row may have both buffers and circular buffers.
func mixed(by int) bool { return !slices.Contains([]string{"stack", "type"}, groupings[by]) }

// An order is an order of rows, and the column by which it sorts.
type order struct {
	name, column string
	compare      func(a, b *alloc.Row) int
}

var orders = []order{
	{"size", "ALL BANKS", func(a, b *alloc.Row) int {
		return cmp.Or(byBytes(live, a, b), byBytes(statics, a, b))
	}},
	{"count", "BUFFERS", func(a, b *alloc.Row) int {
		return cmp.Or(byCount(live, a, b), byCount(statics, a, b))
	}},
	{"growth", "GROWTH", func(a, b *alloc.Row) int {
		return cmp.Or(byBytes(grown, a, b), byCount(grownStatics, a, b))
	}},
	{"rate", "RATE/s", func(a, b *alloc.Row) int { return cmp.Compare(b.Rate, a.Rate) }},
	{"age", "FOR", func(a, b *alloc.Row) int { return cmp.Compare(b.OldestNs, a.OldestNs) }}, // not known is last
	{"name", "", func(a, b *alloc.Row) int { return cmp.Compare(a.Text, b.Text) }},
}

func byBytes(measure int, a, b *alloc.Row) int {
	return cmp.Compare(b.Amounts[measure].Bytes, a.Amounts[measure].Bytes)
}

func byCount(measure int, a, b *alloc.Row) int {
	return cmp.Compare(b.Amounts[measure].Count, a.Amounts[measure].Count)
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
	in   *alloc.Row
	inBy int
}

// rows returns the live call sites of a Present by a grouping, in an order.
func (p *Present) rows(v *arrangement) []*alloc.Row {
	f := &v.filter
	names := &alloc.Namer{Snap: p.Snapshot}
	selected := alloc.Filter{Devices: f.chips}
	if f.pid != 0 {
		selected.PIDs = []int{f.pid}
	}
	if f.region > 0 {
		selected.Regions = []event.Region{alloc.Regions[f.region-1]}
	}
	groups := &table.Table{Names: names}
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
			if one.Amount = part.Amounts[0]; one.Amount != h.Amount {
				rate = 0 // it is not known by owner
				if one.Fresh = fresh; len(part.Holders) > 0 {
					one.Fresh = part.Holders.Since(p.MarkNs)
					one.Fresh = memory.Amount{Count: min(one.Fresh.Count, fresh.Count), Bytes: min(one.Fresh.Bytes, fresh.Bytes)}
					fresh.Sub(one.Fresh)
				}
			}
			if f.text != "" && !s.match(f.text, pattern) && !part.Holders.MatchedBy(pattern) && !pattern.MatchString(part.Class().String()) ||
				f.in != nil && !slices.ContainsFunc(looks(f.inBy, names, part, ""), f.in.Has) {
				continue
			}
			stack := ""
			if f.in != nil {
				stack = s.key
			}
			part.CallSites, part.Rate = []*memory.CallSite{h}, rate
			if !h.BeforeAttach {
				part.OldestNs = max(1, p.NowNs-min(p.NowNs, h.SinceNs))
			}
			if groupings[v.by] == "class" || h.Static != event.NotStatic {
				part.Mix = nil
			}
			for i, look := range looks(v.by, names, part, stack) {
				if groupings[v.by] == "chip" && len(a.Devices) > 0 {
					part.Devices = a.Devices[i : i+1]
				}
				part.Amounts = amountsOf(&one, len(part.Devices))
				groups.AddAs(part, look.Key, look)
			}
		}
	}
	order := func(a, b *alloc.Row) int {
		return cmp.Or(orders[v.order].compare(a, b), orders[bySize].compare(a, b),
			cmp.Compare(a.Text, b.Text), slices.Compare(a.Callers, b.Callers), cmp.Compare(a.Apart, b.Apart))
	}
	rows := groups.Rows(v.by == byStack && f.in == nil, order)
	for _, r := range rows {
		chips := r.Devices
		if groupings[v.by] != "chip" {
			chips = slices.DeleteFunc(devices(r), func(id int) bool { return len(f.chips) > 0 && !slices.Contains(f.chips, id) })
		}
		r.Amounts[statics].Bytes = perCore(r, chips)
	}
	slices.SortStableFunc(rows, order)
	if v.reversed {
		slices.Reverse(rows)
	}
	return rows
}

// parts returns the parts of a call site: without a stack, or by owner, one for each holder.
func (p *Present) parts(h *memory.CallSite, a alloc.Row, v *arrangement) []*alloc.Row {
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
func looks(by int, names *alloc.Namer, a *alloc.Row, stack string) []alloc.Look {
	if by == byStack {
		return []alloc.Look{names.Look(a, a.Region, stack)}
	}
	return page.Each(alloc.GroupingOf(groupings[by]).Keys(names, a), func(key string) alloc.Look { return alloc.Look{Key: alloc.Key{Text: key}} })
}
