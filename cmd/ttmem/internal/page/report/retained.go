package report

import (
	"cmp"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// retained is memory of one kind that the runtime retains in a region.
type retained struct {
	by     *name.Class
	region event.Region
	memory.Amount
	// grows is true if the runtime allocated more of it up to the end.
	grows bool
	// part is how much of the capacity it had at the peak of the region, on the chip where that is the
	// largest share.
	part, capacity uint64
}

// retainedIn returns what the runtime retains if it grows, or fills over a quarter of a region.
func retainedIn(sites []analyze.Verdict, peaks []memory.RegionPeak, pid int) []retained {
	type key struct {
		by     *name.Class
		region event.Region
	}
	var kinds page.Groups[key, retained]
	of := func(by *name.Class, region event.Region) *retained {
		one, found := kinds.Of(key{by, region})
		if !found {
			one.by, one.region = by, region
		}
		return one
	}
	for i := range sites {
		if v := &sites[i]; v.By != nil && (pid == 0 || v.PID == pid) {
			one := of(v.By, v.Region)
			one.Amount.Add(v.Amount)
			one.grows = one.grows || v.Grows
		}
	}
	for i := range peaks {
		sums := make(map[*name.Class]memory.Amount)
		for j := range peaks[i].Holders {
			h := &peaks[i].Holders[j]
			if by := name.ClassOf(h.Stack.Frames(), h.Region); by.Retained() && h.Region == peaks[i].Region && (pid == 0 || h.PID == pid) {
				sum := sums[by]
				sum.Add(h.Amount)
				sums[by] = sum
			}
		}
		for by, sum := range sums {
			one := of(by, peaks[i].Region)
			if one.Count == 0 { // freed since
				one.Amount = sum
			}
			if sum.Bytes > one.part {
				one.part, one.capacity = sum.Bytes, peaks[i].CapacityBytes
			}
		}
	}
	var list []retained
	for _, one := range kinds.List {
		if one.grows || one.capacity > 0 && 4*one.part > one.capacity {
			list = append(list, *one)
		}
	}
	slices.SortFunc(list, func(a, b retained) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.by.Name, b.by.Name), cmp.Compare(a.region, b.region))
	})
	return list
}

// retainedByRuntime writes what the runtime retains, where that matters.
func (r *report) retainedByRuntime() {
	for i := range r.retained {
		one := &r.retained[i]
		text, about := "Retained by the runtime: "+one.by.Name, page.Count(one.Count, "buffer")+", "+page.Bytes(one.Bytes)+" of "+one.region.String()
		if one.grows {
			text += ", still growing"
		}
		if one.capacity > 0 {
			text += ", " + page.Percent(one.part, one.capacity) + " of " + one.region.String()
		}
		if one.by.Cached {
			about += "; device.clear_program_cache() frees it"
		}
		r.sentence(page.Yellow, text)
		for _, line := range page.Wrap(about, r.width-2) {
			r.line("  ", r.Paint(page.Dim, line))
		}
	}
}
