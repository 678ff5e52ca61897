// Package dump lists the live memory at a moment, or its groups.
package dump

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/uses"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// A List is the selected allocations that are live at a moment. Its rows are made when they are needed: there may be
// a million.
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
	items  []item
	// cutOff is how many of All rows are not listed.
	cutOff, All int
	// There is the number of buffers, including those that are not selected.
	There int
	// Moments are the times of the peaks, if these are listed.
	Moments []Moment
	// Ended is the file whose end is listed, where everything may have been freed.
	Ended string
}

// An item is what a row has of its own.
type item struct {
	*memory.Allocation             // nil for a static buffer
	like               *alloc.Row  // has the rest: of all rows of a call site, or of a static buffer
	known              *properties // nil if there are none
}

// properties of a buffer are known of some.
type properties struct {
	owner   memory.Owner
	lastUse uses.Moment
	runs    uint64
}

// totalBytes is that of its row.
func (i *item) totalBytes() uint64 {
	if i.Allocation == nil {
		return i.like.TotalBytes()
	}
	return i.AllocatedBytes() * uint64(max(1, len(i.like.Devices)))
}

// address is that of its row.
func (i *item) address() uint64 {
	if i.Allocation == nil {
		return i.like.Address
	}
	return i.Address
}

// A row is a row of the list with its buffer.
type row struct {
	alloc.Row
	buffer memory.Buffer
	of     *alloc.Row // what it was made of
	known  bool       // it has what only some rows have
}

// set makes it the row of an item.
func (r *row) set(of *item) *alloc.Row {
	b := of.Allocation
	if r.of != of.like || r.known || b == nil { // else the next one is mostly alike
		r.Row = *of.like
		if b != nil {
			r.buffer = *of.like.Buffer
		}
	}
	r.of, r.known = of.like, of.known != nil
	if b != nil {
		r.Like, r.Buffer, r.buffer.Allocation = of.like, &r.buffer, b
		r.Address, r.BytesPerBank, r.Banks, r.SinceNs = b.Address, b.BytesPerBank, uint64(b.Banks), b.SinceNs
	}
	if k := of.known; k != nil {
		r.buffer.Owner, r.Owner, r.LastUse, r.Runs = k.owner, k.owner, k.lastUse, k.runs
	}
	return &r.Row
}

// New lists the live memory of a state.
func New(s *aggregate.State, nowNs uint64, names alloc.Namer) *List {
	l := &List{Namer: names, NowNs: nowNs, There: s.BufferCount()}
	l.items = make([]item, 0, l.There)         // growing would copy a million several times
	sites := make(map[*memory.Site]*alloc.Row) // nil if it is not selected
	var one row
	for h := range s.EachBuffer() {
		like, found := sites[h.Site]
		if !found {
			like = l.like(alloc.Row{
				Buffer: &memory.Buffer{Site: h.Site, Allocator: h.Allocator}, Devices: h.Devices, Region: h.Region, PID: h.PID,
				NowNs: nowNs, BeforeAttach: h.BeforeAttach, Layout: h.Layout.String(),
			}, h.Stack)
			sites[h.Site] = like
		}
		if like == nil {
			continue
		}
		i := item{Allocation: h.Allocation, like: like}
		if use, runs, _ := s.UseOf(h.PID, h.BufferID); h.Owner != (memory.Owner{}) || use.Last != (uses.Moment{}) || runs > 0 {
			i.known = &properties{h.Owner, use.Last, runs}
		}
		if like.Matches || l.MatchesRow(one.set(&i)) { // no row is made for the most
			l.items = append(l.items, i)
		}
	}
	l.addStatics(s)
	l.All = len(l.items)
	return l
}

// like completes what rows have in common; nil if none of them is selected.
func (l *List) like(a alloc.Row, stack *event.Stack) *alloc.Row {
	a, ok := l.Filter.Select(a)
	if !ok {
		return nil
	}
	a.Site = l.Site(stack)
	return &a
}

// At returns the row with a number, of All.
func (l *List) At(i int) *alloc.Row { return new(row).set(&l.items[i]) }

// listed yields the listed rows, and rows all of them, with their numbers. A row is valid until the next one.
func (l *List) listed() iter.Seq2[int, *alloc.Row] { return l.first(len(l.items) - l.cutOff) }

func (l *List) rows() iter.Seq2[int, *alloc.Row] { return l.first(len(l.items)) }

func (l *List) first(n int) iter.Seq2[int, *alloc.Row] {
	return func(yield func(int, *alloc.Row) bool) {
		var one row
		for i := range n {
			if !yield(i, one.set(&l.items[i])) {
				return
			}
		}
	}
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
		like := l.like(alloc.Row{
			Static: &s.Static, Devices: s.devices, Region: event.CB, PID: s.PID, Address: s.Address,
			BytesPerBank: s.BytesPerCore, Banks: uint64(cores), SinceNs: s.SinceNs, NowNs: l.NowNs, BeforeAttach: s.BeforeAttach, Layout: s.Kind.String(),
		}, s.Stack)
		if like != nil && l.MatchesRow(like) {
			l.items = append(l.items, item{like: like})
		}
	}
}

// Append adds the rows of another list.
func (l *List) Append(other *List) {
	l.items, l.All, l.There = append(l.items, other.items...), l.All+other.All, max(l.There, other.There)
	l.NowNs, l.Snap = other.NowNs, other.Snap
}

// OnlyRunning removes the circular buffers of programs that do not run at this moment.
func (l *List) OnlyRunning(s *aggregate.State) {
	l.remove(func(a *alloc.Row) bool {
		return a.Static != nil && !slices.ContainsFunc(a.Devices, func(id int) bool { return s.Runs(a.Static, id) })
	})
}

// OnlyAllocated leaves what was allocated at these times.
func (l *List) OnlyAllocated(times memory.Intervals) {
	l.remove(func(a *alloc.Row) bool { return a.BeforeAttach || !times.Has(a.SinceNs) })
}

func (l *List) remove(is func(*alloc.Row) bool) {
	var one row
	l.items = slices.DeleteFunc(l.items, func(i item) bool { return is(one.set(&i)) })
	l.All = len(l.items)
}

// Sort puts the largest rows first. Static buffers come last: their sizes do not compare with
// others, because programs use the same space.
func (l *List) Sort() {
	slices.SortStableFunc(l.items, func(a, b item) int {
		if order := cmp.Or(memory.CompareBools(a.Allocation != nil, b.Allocation != nil), cmp.Compare(b.totalBytes(), a.totalBytes())); order != 0 {
			return order
		}
		x, y := a.like, b.like
		return cmp.Or(cmp.Compare(x.Region, y.Region), slices.Compare(x.Devices, y.Devices), cmp.Compare(a.address(), b.address()))
	})
}

// Cut keeps the first n rows, or all if n is 0.
func (l *List) Cut(n int) { _, l.cutOff = page.First(l.items, n) }
