// Package dump lists the live memory at a moment, or its groups.
// It is not part of ttmem's Go library: it changes without notice.
package dump

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A List is the selected allocations that are live at a moment.
type List struct {
	alloc.Namer
	// Of is the moment in words: "at the end of model.ttmem".
	Of    string
	NowNs uint64
	// Span is the part of the recording in which what is listed was allocated; zero if all is listed.
	Span page.Span
	// Others describes the memory of other users; "" if all of it is listed.
	Others string
	Notes  []string
	// Losses are the lost events that make the list doubtful.
	Losses memory.AllLosses
	// Failed is true if a part could not be read.
	Failed bool
	Rows   []*alloc.Row
	// block has the latest of them: a million rows one by one would take longer.
	block []alloc.Row
	// cutOff is how many of All rows are not listed.
	cutOff, All int
	// There is the number of buffers, including those that are not selected.
	There int
	// Moments are the times of the peaks, if these are listed.
	Moments []Moment
	// Ended is the file whose end is listed, where everything may have been freed.
	Ended string
}

// New lists the live memory of a state.
func New(s *aggregate.State, nowNs uint64, names alloc.Namer) *List {
	l := &List{Namer: names, NowNs: nowNs}
	buffers := s.Buffers()
	l.Rows = make([]*alloc.Row, 0, len(buffers))
	for i := range buffers {
		h := &buffers[i]
		use, runs, _ := s.UseOf(h.PID, h.BufferID)
		l.add(alloc.Row{
			Buffer: h, Devices: h.Devices, Region: h.Region, PID: h.PID, Address: h.Address, BytesPerBank: h.BytesPerBank,
			Banks: uint64(h.Banks), SinceNs: h.SinceNs, NowNs: nowNs, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(), Owner: h.Owner,
			LastUse: use.Last, Runs: runs,
		}, h.Stack)
	}
	l.addStatics(s)
	l.All, l.There = len(l.Rows), len(buffers)
	return l
}

// addStatics adds the static buffers of programs. The same one on several chips is one row.
func (l *List) addStatics(state *aggregate.State) {
	type key struct {
		pid            int
		program        uint64
		address, bytes uint64
		kind           event.StaticKind
		global         bool
		cores          string
	}
	type static struct {
		memory.Static
		devices []int
	}
	var groups page.Groups[key, static]
	for i := range l.Snap.Devices {
		id := l.Snap.Devices[i].ID
		for _, s := range state.Statics(id) {
			k := key{s.PID, s.ProgramID, s.Address, s.BytesPerCore, s.Kind, s.Global, fmt.Sprint(s.Cores)}
			one, found := groups.Of(k)
			if !found {
				one.Static = s
			}
			one.devices = append(one.devices, id)
		}
	}
	for _, s := range groups.List {
		cores := 0
		for _, c := range s.Cores {
			cores += c.Cores()
		}
		l.add(alloc.Row{
			Static: &s.Static, Devices: s.devices, Region: event.CB, PID: s.PID, Address: s.Address,
			BytesPerBank: s.BytesPerCore, Banks: uint64(cores), SinceNs: s.SinceNs, NowNs: l.NowNs, BeforeAttach: s.BeforeAttach, Layout: s.Kind.String(),
		}, s.Stack)
	}
}

// OnlyRunning removes the circular buffers of programs that do not run at this moment.
func (l *List) OnlyRunning(s *aggregate.State) {
	l.Rows = slices.DeleteFunc(l.Rows, func(a *alloc.Row) bool {
		return a.Static != nil && !slices.ContainsFunc(a.Devices, func(id int) bool { return s.Runs(a.Static, id) })
	})
	l.All = len(l.Rows)
}

// OnlyAllocated leaves what was allocated at these times.
func (l *List) OnlyAllocated(times memory.Intervals) {
	l.Rows = slices.DeleteFunc(l.Rows, func(a *alloc.Row) bool { return a.BeforeAttach || !times.Has(a.SinceNs) })
	l.All = len(l.Rows)
}

// add adds a row if it is selected.
func (l *List) add(a alloc.Row, stack *event.Stack) {
	a, ok := l.Row(a, stack)
	if !ok {
		return
	}
	if len(l.block) == cap(l.block) {
		l.block = make([]alloc.Row, 0, min(1024, 8+len(l.Rows)))
	}
	l.block = append(l.block, a)
	l.Rows = append(l.Rows, &l.block[len(l.block)-1])
}

// Sort puts the largest rows first. Static buffers come last: their sizes do not compare with
// others, because programs use the same space.
func (l *List) Sort() {
	slices.SortStableFunc(l.Rows, func(a, b *alloc.Row) int {
		place := cmp.Or(cmp.Compare(a.Region, b.Region), slices.Compare(a.Devices, b.Devices), cmp.Compare(a.Address, b.Address))
		return cmp.Or(memory.CompareBools(a.Static == nil, b.Static == nil), cmp.Compare(b.TotalBytes(), a.TotalBytes()), place)
	})
}

// Cut keeps the first n rows, or all if n is 0.
func (l *List) Cut(n int) { _, l.cutOff = page.First(l.Rows, n) }
