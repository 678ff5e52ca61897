package report

import (
	"cmp"
	"fmt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/table"
)

// leastTemporary is the least number of temporary allocations that the text names.
const leastTemporary = 1000

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

// churn names the call site with the most bytes of temporary allocations, if these are more than half of all
// allocations, and nothing worse is to be said.
func (r *report) churn() {
	list, sum := r.temporaries()
	all := r.State.BuffersAllocated()
	if len(r.leaked) > 0 || r.snap.FailureCount > 0 || sum.Count < leastTemporary || 2*sum.Count <= all || len(list) == 0 {
		return
	}
	most := temporarySites(list)[0]
	text := fmt.Sprintf("%s of %s buffers were temporary, %s of them at %s", page.Grouped(sum.Count), page.Grouped(all),
		page.Grouped(most.Amounts[0].Count), cmp.Or(page.Clean(most.Name.Call.String()), most.Text))
	r.sentence(page.Dim, text)
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
