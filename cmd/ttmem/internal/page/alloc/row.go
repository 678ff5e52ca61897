// Package alloc has the rows of pages that list allocations: their filter, names and groups.
package alloc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/uses"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// Regions are all regions, in the order of pages.
var Regions = []event.Region{event.DRAM, event.L1, event.CB, event.L1Small, event.Trace, event.SystemMemory}

// RegionNames are the names of regions.
func RegionNames(regions []event.Region) []string { return page.Each(regions, event.Region.String) }

// ParseRegions are the regions with these names, which must be known.
func ParseRegions(names []string, known []event.Region) (regions []event.Region, err error) {
	for _, name := range names {
		i := slices.IndexFunc(known, func(r event.Region) bool { return strings.EqualFold(r.String(), name) })
		if i < 0 {
			return nil, fmt.Errorf("--region %s: choose %s", name, strings.Join(RegionNames(known), ", "))
		}
		regions = append(regions, known[i])
	}
	return regions, nil
}

// A Filter is the selection by flags; empty fields select everything.
type Filter struct {
	Devices, PIDs []int
	Regions       []event.Region
	Grep          *regexp.Regexp
}

// Select reduces a row to its selected chips; ok is false if the row is not selected.
func (f *Filter) Select(a Row) (_ Row, ok bool) {
	a.Chips = len(a.Devices)
	if len(f.Devices) > 0 {
		a.Devices = slices.DeleteFunc(slices.Clone(a.Devices), func(id int) bool { return !slices.Contains(f.Devices, id) })
	}
	return a, (len(f.Devices) == 0 || len(a.Devices) > 0) &&
		(len(f.Regions) == 0 || slices.Contains(f.Regions, a.Region)) &&
		(len(f.PIDs) == 0 || slices.Contains(f.PIDs, a.PID))
}

// SelectsPeak reports whether the peak of a region of a chip is selected. Circular buffers are
// part of the peak of L1.
func (f *Filter) SelectsPeak(device int, region event.Region) bool {
	return (len(f.Devices) == 0 || slices.Contains(f.Devices, device)) &&
		(len(f.Regions) == 0 || slices.Contains(f.Regions, region) || region == event.L1 && slices.Contains(f.Regions, event.CB))
}

// A Row is a row of a list: an allocation, which is a buffer, or a circular buffer, dataflow buffer or
// scratchpad of a program; or several allocations that are counted together. Lists of other things than
// allocations have rows, too.
type Row struct {
	// The row is one of these, or a sum of them; all are nil for sums of allocations.
	Buffer    *memory.Buffer
	Static    *memory.Static
	Verdict   *analyze.Verdict
	Operation *memory.Operation
	CallSites []*memory.CallSite
	// Devices are the selected chips of the row, and Chips is the number of all its chips.
	Devices []int
	Chips   int
	Region  event.Region
	PID     int
	Address uint64
	// BytesPerBank is the size in each of Banks banks of each chip, or in each core if the row is
	// static.
	BytesPerBank, Banks uint64
	SinceNs, NowNs      uint64
	BeforeAttach        bool // SinceNs is not known
	Layout              string
	// LastUse is the latest run or transfer that used it, and Runs the number of runs after that; zero if none is known.
	LastUse uses.Moment
	Runs    uint64
	// Owner is who holds it; empty if that is not known.
	Owner memory.Owner
	// OwnerClass is the class by the owner, for rows of several buffers.
	OwnerClass *name.Class
	// Amounts are the measures of a list, in the order that the list declares.
	Amounts []memory.Amount
	// OldestNs is the largest known age of its allocations.
	OldestNs uint64
	// Rate is how many are allocated per second.
	Rate float64
	// Of a difference: Moved is true if a line of its calls in A is another one in B, and ALine is the line
	// of its innermost call in A if it is that one.
	Moved bool
	ALine int
	// Mention is a remark on it, such as its region; "" for none.
	Mention string
	Holders Holders
	Mix     Mix
	// Like is the same for rows of buffers that differ only in what each buffer has of its own; nil for other rows.
	Like *Row
	*Site
}

// Add adds the measures of another row of the same list.
func (a *Row) Add(b *Row) {
	for i := range a.Amounts {
		a.Amounts[i].Add(b.Amounts[i])
	}
	a.OldestNs, a.Rate = max(a.OldestNs, b.OldestNs), a.Rate+b.Rate
	a.Moved, a.ALine = a.Moved || b.Moved, max(a.ALine, b.ALine)
	a.Holders.Add(b.Holders)
	a.Mix.AddAll(b.Mix)
	a.CallSites = append(a.CallSites, b.CallSites...)
	if a.Verdict != nil {
		sum := *a.Verdict
		sum.Add(b.Verdict)
		a.Verdict = &sum
	}
	if a.Operation != nil {
		sum := *a.Operation
		if analyze.AddOperation(&sum, b.Operation); sum.Stack != a.Operation.Stack {
			site := *b.Site
			site.Key, site.Look.Callers, a.Site = a.Key, a.Callers, &site
		}
		a.Operation = &sum
	}
}

// Class is what the buffers of a row are for, by their call stack or else by their owner. It is nil if
// that is not known, and for what is no buffer.
func (a *Row) Class() *name.Class {
	switch {
	case int(a.Region) >= event.BankedRegions || a.Static != nil:
		return nil
	case a.Region == event.Trace:
		return name.ClassOf(nil, a.Region)
	case a.class != nil:
		return a.class
	case a.OwnerClass != nil:
		return a.OwnerClass
	}
	return name.ClassByOwner(a.Owner.Path, a.Owner.Tensor)
}

// RowOf is a row for the allocations of a call site.
func RowOf(s *memory.Site) Row {
	a := Row{Devices: s.Devices, Region: s.Region, PID: s.PID, BeforeAttach: s.BeforeAttach, Layout: s.Layout.String()}
	if s.Static != event.NotStatic {
		a.Layout = s.Static.String()
	}
	return a
}

// Bytes is its size on each chip.
func (a *Row) Bytes() uint64 { return a.BytesPerBank * a.Banks }

// EachBytes is the size of each of its allocations, or the mean of those that are counted together.
func (a *Row) EachBytes() uint64 {
	if n := a.Bytes(); n > 0 {
		return n
	}
	var sum memory.Amount
	for _, m := range a.Amounts {
		sum.Add(m)
	}
	return sum.Bytes / max(1, sum.Count)
}

// Age is how long it has been live, in ns.
func (a *Row) Age() uint64 { return a.NowNs - min(a.NowNs, a.SinceNs) }

// Idle is how long it has not been used, in ns.
func (a *Row) Idle() uint64 { return a.NowNs - min(a.NowNs, a.LastUse.TimeNs) }

// TotalBytes returns the size on all selected chips; 0 if the row is inside a buffer.
func (a *Row) TotalBytes() uint64 {
	if a.Static != nil && a.Static.Global {
		return 0
	}
	return a.Bytes() * uint64(max(1, len(a.Devices)))
}
