package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// listing is everything that is allocated, as far as it is asked for.
type listing struct {
	*present
	rows []alloc.Row
	// cutOff are how many rows are not listed, of all.
	cutOff, all int
	// there is how many buffers there are, also those that were not asked for.
	there int
	// moments are those of the peaks of regions, where these are listed.
	moments []dumpMoment
	// ended is true for the end of a file, at which all may be freed.
	ended bool
	alloc.Namer
}

func newListing(p *present, filter alloc.Filter, rules *name.Rules) (*listing, error) {
	l := &listing{present: p, Namer: alloc.Namer{Snap: p.Snapshot(), Rules: rules, Filter: filter}}
	if err := l.checkFilter(); err != nil {
		return nil, err
	}
	held := p.Held()
	for i := range held {
		l.addBuffer(&held[i])
	}
	l.addStatics()
	l.all, l.there = len(l.rows), len(held)
	return l, nil
}

// checkFilter makes sure that what is asked for by number is there.
func (l *listing) checkFilter() error {
	var devices, pids []int
	for i := range l.Snap.Devices {
		devices = append(devices, l.Snap.Devices[i].ID)
	}
	for i := range l.Snap.Processes {
		if l.Snap.Processes[i].Exit == nil {
			pids = append(pids, l.Snap.Processes[i].PID)
		}
	}
	if err := checkAsked(nil, l.Filter.Devices, nil, devices, l.of); err != nil {
		return err
	}
	for _, pid := range l.Filter.PIDs {
		ended := func(p aggregate.Process) bool { return p.PID == pid && p.Exit != nil }
		switch {
		case !slices.Contains(pids, pid) && slices.ContainsFunc(l.Snap.Processes, ended):
			return fmt.Errorf("-p %d: the process has ended, and holds nothing %s; `ttmem report … -p %d` shows what it had", pid, l.of, pid)
		case len(pids) == 0:
			return fmt.Errorf("-p %d: no process is running %s", pid, l.of)
		case !slices.Contains(pids, pid):
			return fmt.Errorf("-p %d: not running %s; available: PID %s", pid, l.of, strings.Trim(fmt.Sprint(pids), "[]"))
		}
	}
	return nil
}

func (l *listing) addBuffer(h *aggregate.Held) {
	l.add(alloc.Row{
		Buffer: h, Devices: h.Devices, Region: h.Region, PID: h.PID, Address: h.Address,
		BytesPerBank: h.BytesPerBank, Banks: uint64(h.Banks), SinceNs: h.SinceNs, NowNs: l.nowNs, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(),
	}, h.Stack)
}

// addStatics adds what programs have in L1. What is at the same place of several
// chips is one.
func (l *listing) addStatics() {
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
	for i := range l.Snap.Devices {
		id := l.Snap.Devices[i].ID
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
		l.add(alloc.Row{
			Static: s, Devices: devices[k], Region: event.CB, PID: s.PID, Address: s.Address,
			BytesPerBank: s.BytesPerCore, Banks: uint64(cores), SinceNs: s.SinceNs, NowNs: l.nowNs, BeforeAttach: s.BeforeAttach, Layout: s.Kind.String(),
		}, s.Stack)
	}
}

// add adds what the filter lets through.
func (l *listing) add(a alloc.Row, stack *event.Stack) {
	if a, ok := l.Row(a, stack); ok {
		l.rows = append(l.rows, a)
	}
}

// sort puts the largest rows first. Buffers come before what is static: that is laid over
// what other programs have, so that the sizes of both do not compare.
func (l *listing) sort() {
	slices.SortStableFunc(l.rows, func(a, b alloc.Row) int {
		// the same place on other chips is another one
		place := cmp.Or(cmp.Compare(a.Region, b.Region), slices.Compare(a.Devices, b.Devices), cmp.Compare(a.Address, b.Address))
		return cmp.Or(page.CompareBool(a.Static != nil, b.Static != nil), cmp.Compare(b.TotalBytes(), a.TotalBytes()), place)
	})
}

// cut keeps the first n rows, or all where n is 0.
func (l *listing) cut(n int) {
	if n > 0 && n < len(l.rows) {
		l.cutOff = len(l.rows) - n
	}
}
