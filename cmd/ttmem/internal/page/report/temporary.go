package report

import (
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// temporaries returns the temporary allocations by call site, and their sum, on all chips: see package churn.
func (r *report) temporaries() (list []memory.SiteAmount, sum memory.Amount) {
	all, others := r.State.Temporary()
	for _, one := range all {
		if one.Bytes *= uint64(max(1, len(one.Devices))); r.PID == 0 || one.PID == r.PID {
			list = append(list, one)
			sum.Add(one.Amount)
		}
	}
	if r.PID == 0 {
		sum.Add(others)
	}
	return list, sum
}

// temporarySites returns call sites, those with the most bytes first.
func temporarySites(list []memory.SiteAmount) []*alloc.Row {
	sites := newSources()
	for i := range list {
		sites.add(&list[i].Site, list[i].Amount, "", nil)
	}
	return sites.Rows(true, nil)
}

// temporaryBuffers are buffers that the program freed before their call site had allocated two more.
type temporaryBuffers struct {
	// Count and Bytes are of all of them, on all chips.
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
	// Allocated is how many buffers were allocated, by all processes.
	Allocated uint64 `json:"allocated"`
	// Sites are the call sites with the most bytes.
	Sites []table.Object[site] `json:"sites"`
}

func (r *report) temporaryDocument() temporaryBuffers {
	list, sum := r.temporaries()
	sites, _ := page.First(temporarySites(list), shownSites)
	return temporaryBuffers{sum.Count, sum.Bytes, r.State.BuffersAllocated(), table.Objects[site](fields(), sites)}
}
