package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/uses"
	"ttmem/tracer/event"
)

// freedAt remembers where a buffer was that a program frees.
func (p *process) freedAt(b *buffer, e *event.Event) {
	if p.used != nil && !b.PerCore && !e.Reason.IsEnd() {
		b.arena.places.Free(uses.Freed{Start: b.Address, Region: b.Region, Run: p.used.Runs, AllocatedBy: b.Stack, FreedBy: e.Stack})
	}
}

// forgetFreed forgets where freed buffers of a process were, because events were lost; nil: of all processes.
func (s *State) forgetFreed(only *process) {
	for _, p := range s.processes {
		if only == nil || p == only {
			for a := range p.arenas() {
				a.places.Forget()
			}
		}
	}
}

// useFreed counts a run that has the address of a freed buffer: of the one that was freed last, if several allocators had one.
func (p *process) useFreed(e *event.Event, arenas []*arena, at uint64, static bool) {
	var latest uses.Freed
	var in *arena
	for _, a := range arenas {
		if f, found := a.places.Freed(at, static); found && (in == nil || cmp.Or(cmp.Compare(f.Run, latest.Run), cmp.Compare(a.allocator, in.allocator)) > 0) {
			latest, in = f, a
		}
	}
	if in == nil || latest.Run+1 == p.used.Runs && isSameCall(latest.FreedBy, e.Stack) {
		return
	}
	p.state.addAfterFree(memory.AfterFree{
		TimeNs: e.TimeNs, Address: at, Devices: in.set.ids, Region: latest.Region.String(), PID: p.name.pid, UID: p.name.about.UID, Sharer: p.name.sharer(),
		Count: 1, Stack: e.Stack, AllocatedBy: latest.AllocatedBy, FreedBy: latest.FreedBy,
	})
}

// isSameCall reports whether a free and the next run are of one call of an operation: ttnn.move frees its input, allocates its
// result where that may be, and then copies. Without calls of Python it may be one.
func isSameCall(free, run *event.Stack) bool {
	calls := func(s *event.Stack) []event.Frame {
		return slices.DeleteFunc(slices.Clone(s.Frames()), func(f event.Frame) bool { return f.Kind != event.Python })
	}
	return slices.Equal(calls(free), calls(run))
}

func (s *State) addAfterFree(one memory.AfterFree) {
	var of *memory.AfterFree
	if s.afterFree, of = listed(s.afterFree, one, one.SameLines, func(a *memory.AfterFree) bool { return a.Sharer == one.Sharer }); of != nil {
		of.Count++
	}
}
