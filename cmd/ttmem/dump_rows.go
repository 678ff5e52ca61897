package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// allocation is a line of a dump: a buffer, or a circular buffer, dataflow buffer or
// scratchpad of a program.
type allocation struct {
	buffer *aggregate.Held   // nil: it is static
	static *aggregate.Static // nil: it is a buffer
	// devices are those of its chips that are shown, and chips is how many it is on.
	devices []int
	chips   int
	region  event.Region
	pid     int
	address uint64
	// perBank is what it takes of each of banks banks of each chip; for what is
	// static, of each core.
	perBank, banks uint64
	since, nowNs   uint64
	before         bool // it was there before the attach, and since is not known
	layout         string
	*site
}

// site is what there is to know of a call stack, once for all that is from it.
type site struct {
	stack     *event.Stack // nil: there is none
	name      name.Name
	component string
	matches   bool
	// caller tells it from another one with the same name, where that is asked for.
	caller string
}

// bytes is what it takes on each chip.
func (a *allocation) bytes() uint64 { return a.perBank * a.banks }

// age is how long it has been there.
func (a *allocation) age() uint64 { return a.nowNs - min(a.nowNs, a.since) }

// taken is what it takes on all of its chips that are shown; nothing where it lies in
// a buffer.
func (a *allocation) taken() uint64 {
	if a.static != nil && a.static.Global {
		return 0
	}
	return a.bytes() * uint64(max(1, len(a.devices)))
}

// listing is everything that is allocated, as far as it is asked for.
type listing struct {
	*present
	snap *aggregate.Snapshot
	rows []allocation
	// cutOff are how many rows are not listed, of all.
	cutOff, all int
	// there is how many buffers there are, also those that were not asked for.
	there int
	// moments are those of the peaks of regions, where these are listed.
	moments []dumpMoment
	// ended is true for the end of a file, at which all may be freed.
	ended  bool
	rules  *name.Rules
	filter dumpFilter
}

func newListing(p *present, filter dumpFilter, rules *name.Rules) (*listing, error) {
	l := &listing{present: p, snap: p.Snapshot(), rules: rules, filter: filter}
	if err := l.checkFilter(); err != nil {
		return nil, err
	}
	sites := make(map[*event.Stack]*site)
	held := p.Held()
	for i := range held {
		l.addBuffer(&held[i], sites)
	}
	l.addStatics(sites)
	l.all, l.there = len(l.rows), len(held)
	return l, nil
}

// checkFilter makes sure that what is asked for by number is there.
func (l *listing) checkFilter() error {
	var devices, pids []int
	for i := range l.snap.Devices {
		devices = append(devices, l.snap.Devices[i].ID)
	}
	for i := range l.snap.Processes {
		if l.snap.Processes[i].Exit == nil {
			pids = append(pids, l.snap.Processes[i].PID)
		}
	}
	if err := checkAsked(nil, l.filter.devices, nil, devices, l.of); err != nil {
		return err
	}
	for _, pid := range l.filter.pids {
		ended := func(p aggregate.Process) bool { return p.PID == pid && p.Exit != nil }
		switch {
		case !slices.Contains(pids, pid) && slices.ContainsFunc(l.snap.Processes, ended):
			return fmt.Errorf("-p %d: the process has ended, and holds nothing %s; `ttmem report … -p %d` shows what it had", pid, l.of, pid)
		case len(pids) == 0:
			return fmt.Errorf("-p %d: no process is running %s", pid, l.of)
		case !slices.Contains(pids, pid):
			return fmt.Errorf("-p %d: not running %s; available: PID %s", pid, l.of, strings.Trim(fmt.Sprint(pids), "[]"))
		}
	}
	return nil
}

func (l *listing) addBuffer(h *aggregate.Held, sites map[*event.Stack]*site) {
	l.add(allocation{
		buffer: h, devices: h.Devices, region: h.Region, pid: h.PID, address: h.Address,
		perBank: h.BytesPerBank, banks: uint64(h.Banks), since: h.SinceNs, nowNs: l.nowNs, before: h.BeforeAttach, layout: h.Layout.String(),
	}, h.Stack, sites)
}

// addStatics adds what programs have in L1. What is at the same place of several
// chips is one.
func (l *listing) addStatics(sites map[*event.Stack]*site) {
	type key struct {
		pid            int
		program        uint64
		address, bytes uint64
		kind           event.StaticKind
		global         bool
		cores          string
	}
	var keys []key
	first := make(map[key]*aggregate.Static)
	devices := make(map[key][]int)
	for i := range l.snap.Devices {
		id := l.snap.Devices[i].ID
		for _, s := range l.Statics(id) {
			k := key{s.PID, s.ProgramID, s.Address, s.BytesPerCore, s.Kind, s.Global, fmt.Sprint(s.Cores)}
			if first[k] == nil {
				first[k] = &s
				keys = append(keys, k)
			}
			devices[k] = append(devices[k], id)
		}
	}
	for _, k := range keys {
		s := first[k]
		cores := 0
		for _, c := range s.Cores {
			cores += c.Cores()
		}
		l.add(allocation{
			static: s, devices: devices[k], region: event.CB, pid: s.PID, address: s.Address,
			perBank: s.BytesPerCore, banks: uint64(cores), since: s.SinceNs, nowNs: l.nowNs, before: s.BeforeAttach, layout: s.Kind.String(),
		}, s.Stack, sites)
	}
}

// add adds what the filter lets through.
func (l *listing) add(a allocation, stack *event.Stack, sites map[*event.Stack]*site) {
	f := &l.filter
	a.chips = len(a.devices)
	if len(f.devices) > 0 {
		a.devices = slices.DeleteFunc(slices.Clone(a.devices), func(id int) bool { return !slices.Contains(f.devices, id) })
	}
	if len(f.devices) > 0 && len(a.devices) == 0 ||
		len(f.regions) > 0 && !slices.Contains(f.regions, a.region) ||
		len(f.pids) > 0 && !slices.Contains(f.pids, a.pid) {
		return
	}
	if a.site = sites[stack]; a.site == nil {
		a.site = l.newSite(stack)
		sites[stack] = a.site
	}
	if a.matches {
		l.rows = append(l.rows, a)
	}
}

func (l *listing) newSite(stack *event.Stack) *site {
	frames := stack.Frames()
	s := &site{stack: stack, name: name.Of(frames)}
	if l.rules != nil {
		s.component = l.rules.Component(frames)
	} else {
		s.component = name.DefaultComponent(frames)
	}
	grep := l.filter.grep
	s.matches = grep == nil || grep.MatchString(s.name.String()) || grep.MatchString(s.component)
	for i := 0; i < len(frames) && !s.matches; i++ {
		s.matches = grep.MatchString(name.FrameText(&frames[i]))
	}
	return s
}

// sort puts the largest rows first. Buffers come before what is static: that is laid over
// what other programs have, so that the sizes of both do not compare.
func (l *listing) sort() {
	slices.SortStableFunc(l.rows, func(a, b allocation) int {
		// the same place on other chips is another one
		place := cmp.Or(cmp.Compare(a.region, b.region), slices.Compare(a.devices, b.devices), cmp.Compare(a.address, b.address))
		return cmp.Or(page.CompareBool(a.static != nil, b.static != nil), cmp.Compare(b.taken(), a.taken()), place)
	})
}

// cut keeps the first n rows, or all where n is 0.
func (l *listing) cut(n int) {
	if n > 0 && n < len(l.rows) {
		l.cutOff = len(l.rows) - n
	}
}

// title is what a row is called, in one line.
func (l *listing) title(a *allocation, separator string) string {
	name := page.Clean(a.name.Text(separator))
	if name == "" {
		switch {
		case a.before:
			name = "(there before the attach)"
		case a.stack == nil:
			name = "(no call stack)"
		default:
			name = "(unknown code)"
		}
	}
	if l.rules != nil && a.component != "" {
		name = page.Clean(a.component) + separator + name
	}
	return name
}
