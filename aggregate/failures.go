package aggregate

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/internal/space"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// fail adds a failed allocation, or an operation that failed for another reason. It does not create a
// process.
func (s *State) fail(e *event.Event) {
	failures := &s.failures
	failure := memory.Failure{
		TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm,
		Devices: append([]int{}, e.Devices...),
		Region:  e.Region.String(), Reason: e.Reason.String(),
		SizeBytes: e.SizeBytes, BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, Message: e.Message, Stack: e.Stack, Number: s.applied,
	}
	if p := s.known(e.PID); p != nil {
		p.name.comm = cmp.Or(p.name.comm, e.Comm)
		failure.UID, failure.Sharer, failure.Evidence = p.name.about.UID, p.name.sharer(), p.evidence(e)
		op := s.operation(p.set(e.Devices), e)
		op.Failures, op.LastNs = op.Failures+1, e.TimeNs
		if e.Reason == event.ReasonTraceTooSmall {
			p.refuseTrace(e)
		}
	}
	if e.Kind == event.OperationFailed {
		failures, failure.Region = &s.operationFailures, ""
		if strings.Contains(e.Message, "not allocated") {
			freed := s.Deallocations(e.PID)
			failure.Freed = freed[:min(len(freed), maxFreed)]
		}
	}
	failures.Add(failure)
	if e.Kind == event.OperationFailed {
		return
	}
	for _, id := range e.Devices {
		if c := s.chips[id]; c != nil && e.Region < event.NumRegions {
			c.failures[e.Region]++
		}
	}
}

// maxFreed is the number of frees that are kept with a failure.
const maxFreed = 16

// resolveStacks resolves the call stacks in failures and operations of a process that ended. An
// unresolved stack keeps all data about the process's code in memory.
func (s *State) resolveStacks(pid int) {
	s.overlaps.Each(func(o *memory.Overlap) { o.ResolveStacks(pid) })
	for i := range s.unsafe {
		if s.unsafe[i].PID == pid {
			s.unsafe[i].Stack.Calls()
		}
	}
	for i := range s.afterFree {
		if a := &s.afterFree[i]; a.PID == pid {
			for _, stack := range []*event.Stack{a.Stack, a.AllocatedBy, a.FreedBy} {
				stack.Calls()
			}
		}
	}
	for _, list := range []*newest.List[memory.Failure]{&s.failures, &s.operationFailures} {
		list.Each(func(f *memory.Failure) {
			if f.PID == pid {
				f.Stack.Calls()
				f.Evidence.ResolveStacks()
				for i := range f.Freed {
					f.Freed[i].AllocatedBy.Calls()
					f.Freed[i].FreedBy.Calls()
				}
			}
		})
	}
	for _, op := range s.operations.list {
		if op.set.process.pid == pid {
			op.Stack.Calls()
		}
	}
}

// evidence returns the state of the region when an allocation failed; nil if nothing in it explains
// the failure.
func (p *process) evidence(e *event.Event) *memory.Evidence {
	clash := e.Reason == event.ReasonStaticClash
	region := e.Region
	var statics []memory.Static
	switch e.Reason {
	case event.ReasonStaticClash, event.ReasonStaticTooLarge:
		region, statics = event.L1, p.clashing(e)
	case event.ReasonKernelConfigTooSmall:
		region = event.L1
	case event.ReasonOutOfMemory, event.ReasonTraceTooSmall, event.ReasonRefused:
	default:
		return nil
	}
	if int(region) >= event.BankedRegions || !p.state.examined.take(p.state, p.name.user(), p.buffers.Len()) {
		return nil
	}
	address, a := p.allocatorOf(e, region)
	var room event.Capacity
	if a != nil {
		room = a.capacities[region]
		if e.Reason == event.ReasonKernelConfigTooSmall { // all that is not for kernels
			room.BytesPerBank += a.capacities[event.L1Small].BytesPerBank
		}
	}
	buffers := p.list(func(b *buffer) bool {
		if e.Reason == event.ReasonStaticTooLarge || e.Reason == event.ReasonKernelConfigTooSmall {
			return false // whatever else is there
		}
		// Circular buffers must not overlap the buffers of any allocator of the device.
		// An allocation only depends on its own allocator.
		return b.Region == region && (b.allocator == address || clash && slices.Equal(b.set.ids, e.Devices))
	})
	ev := space.Evidence(e, region, room, buffers, statics)
	if a != nil && region == event.L1 {
		ev.SubDevicesPerBank = a.subDevices
	}
	return ev
}

// allocatorOf returns the allocator of an event and its address in the process. If the event
// does not name it, it is the largest one of the same chips.
func (p *process) allocatorOf(e *event.Event, region event.Region) (address uint64, a *allocator) {
	if a := p.allocators[e.Allocator]; a != nil {
		return e.Allocator, a
	}
	for _, key := range sortedKeys(p.allocators) {
		one := p.allocators[key]
		if slices.Equal(one.set.ids, e.Devices) &&
			(a == nil || memory.CompareCapacity(one.capacities[region], a.capacities[region]) > 0) {
			address, a = key, one
		}
	}
	return address, a
}

// clashing returns the circular buffers of the event's program, of the kind that did not fit. It
// returns those of the first chip, because all chips have the same.
func (p *process) clashing(e *event.Event) []memory.Static {
	if len(e.Devices) == 0 {
		return nil
	}
	return slices.DeleteFunc(p.statics(e.ProgramID, e.Devices[0]), func(one memory.Static) bool {
		return one.Global || e.StaticKind != event.NotStatic && one.Kind.FreedAs() != e.StaticKind
	})
}
