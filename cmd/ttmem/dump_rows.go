package main

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A listing is what is live at a moment, as far as it is selected.
type listing struct {
	alloc.Namer
	// of is when and where that is: "at the end of model.ttmem".
	of    string
	nowNs uint64
	// others is what is known of the memory of other users; "" if all of it is listed.
	others string
	notes  []string
	// failed is true if not all could be read.
	failed bool
	rows   []alloc.Row
	// cutOff is how many of all rows are not listed.
	cutOff, all int
	// there is the number of buffers, also of those that are not selected.
	there int
	// moments are when the peaks of regions were, if these are listed.
	moments []dumpMoment
	// ended is true for the end of a file, where everything may have been freed.
	ended bool
}

// listState lists what is live in a state.
func listState(s *aggregate.State, nowNs uint64, names alloc.Namer) *listing {
	l := &listing{Namer: names, nowNs: nowNs}
	buffers := s.Held()
	for i := range buffers {
		l.addBuffer(&buffers[i])
	}
	l.addStatics(s)
	l.all, l.there = len(l.rows), len(buffers)
	return l
}

func (l *listing) addBuffer(h *aggregate.Held) {
	l.add(alloc.Row{
		Buffer: h, Devices: h.Devices, Region: h.Region, PID: h.PID, Address: h.Address,
		BytesPerBank: h.BytesPerBank, Banks: uint64(h.Banks), SinceNs: h.SinceNs, NowNs: l.nowNs, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(),
	}, h.Stack)
}

// addStatics adds the static buffers of programs. The same one on several chips is one row.
func (l *listing) addStatics(state *aggregate.State) {
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
		for _, s := range state.Statics(id) {
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

// add adds a row if it is selected.
func (l *listing) add(a alloc.Row, stack *event.Stack) {
	if a, ok := l.Row(a, stack); ok {
		l.rows = append(l.rows, a)
	}
}

// sort puts the largest rows first. Static buffers come last: programs use the same space for
// theirs, so that sizes do not compare.
func (l *listing) sort() {
	slices.SortStableFunc(l.rows, func(a, b alloc.Row) int {
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
