package peak

import (
	"fmt"
	"slices"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
)

// late says of processes that ran before they were attached that the rise with which they
// begin is none: that is when their memory was read. It is "" where there are none.
func (p *Page) late(filter *alloc.Filter) string {
	var pids []int
	var buffers uint64
	for i := range p.Snap.Processes {
		one := &p.Snap.Processes[i]
		// One that was attached before the beginning is in what there was by then.
		if one.BeforeAttachBuffers == 0 || one.SinceNs < p.beginNs || len(filter.PIDs) > 0 && !slices.Contains(filter.PIDs, one.PID) {
			continue
		}
		buffers += one.BeforeAttachBuffers
		if !slices.Contains(pids, one.PID) {
			pids = append(pids, one.PID)
		}
	}
	if len(pids) == 0 {
		return ""
	}
	if len(pids) > 1 {
		return fmt.Sprintf("PID %s ran already: their first rises are no allocations, but the reading of what they had from their memory: %s.",
			page.PIDs(pids[:min(len(pids), shownOwners)]), page.Count(buffers, "buffer"))
	}
	return fmt.Sprintf("PID %d ran already: its first rise is no allocation, but the reading of what it had from its memory: %s.",
		pids[0], page.Count(buffers, "buffer"))
}
