package tracer

import (
	"context"
	"errors"
	"fmt"

	"ttmem/tracer/event"
	"ttmem/tracer/heap/owner"
	"ttmem/tracer/host"
)

// findOwners looks for who holds the Buffers of a process, whose ids are given by their addresses.
func (f *finder) findOwners(ctx context.Context, pid int, ids map[uint64]uint64) {
	holders, _, err := owner.Holders(ctx, f.reads.readers, pid, ids)
	if err != nil && !errors.Is(err, owner.ErrNoPython) && ctx.Err() == nil && host.Running(pid) {
		f.warn(fmt.Sprintf("process %d: not all owners of its buffers were found: %v", pid, err))
	}
	list := make([]event.Event, 0, len(holders))
	for object, h := range holders {
		list = append(list, event.Event{
			Kind: event.Owner, PID: pid, TID: pid, BufferID: ids[object], Object: object, Cause: h.Path, Message: h.Tensor,
		})
	}
	f.inbox.add(found{host.Now(), func(d *decoder) bool {
		n := min(len(list), max(0, maxTaken-d.taken))
		d.taken += n
		d.reportOwners(list[:n])
		if list = list[n:]; len(list) > 0 {
			return false
		}
		f.late.searching.Add(-1)
		return true
	}})
}

// reportOwners reports the owners of buffers that are still live.
func (d *decoder) reportOwners(list []event.Event) {
	for _, e := range list {
		p := d.processes[e.PID]
		if p == nil {
			return
		}
		if live, ok := p.live[e.Object]; ok && live.id == e.BufferID {
			e.TimeNs = max(d.newest, d.queue.released)
			d.emit(e)
		}
	}
}
