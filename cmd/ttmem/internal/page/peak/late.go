package peak

import (
	"fmt"
	"slices"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// late says that the first step of late-attached processes is their existing memory; "" if there
// are none.
func (p *Page) late(filter *alloc.Filter) string {
	var pids []int
	var buffers uint64
	for i := range p.Snap.Processes {
		one := &p.Snap.Processes[i]
		// The existing memory includes processes that were attached before the beginning.
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
	subject, owner := fmt.Sprintf("PID %d was", pids[0]), "its"
	if len(pids) > 1 {
		subject, owner = fmt.Sprintf("PID %s were", page.PIDs(pids[:min(len(pids), shownOwners)])), "their"
	}
	return fmt.Sprintf("%s already running: the first step is %s existing memory, %s.", subject, owner, page.Count(buffers, "buffer"))
}
