package aggregate

import (
	"iter"
	"slices"

	"ttmem/tracer/event"
)

// Implied returns the events that e stands for besides itself, for a stream
// that is to tell of every end: the frees of what is still held at a
// DeviceClose or a ProcessExit and, at the latter, the ends of programs'
// circular buffers and kernels. A ProcessStart of a process that is known
// already implies the exit of the earlier one. They have the time of e.
//
// They are to be applied before e, which then finds nothing left to end:
//
//	for implied := range state.Implied(&e) {
//		emit(implied)
//		state.Apply(implied)
//	}
//	emit(&e)
//	state.Apply(&e)
//
// They come in order: buffers by the time of their allocation, then programs by
// their ids. They tell of the state as it is when they begin to be iterated, and each is
// only valid until the next one: there may be a million.
func (s *State) Implied(e *event.Event) iter.Seq[*event.Event] {
	switch e.Kind {
	case event.DeviceClose, event.ProcessExit, event.ProcessStart:
	default:
		return func(func(*event.Event) bool) {}
	}
	return func(yield func(*event.Event) bool) {
		p := s.known(e.PID)
		if p == nil {
			return
		}
		if e.Kind == event.DeviceClose {
			buffers := p.inOrder(func(b *buffer) bool { return b.allocator == e.Allocator })
			impliedFrees(e, buffers, event.ReasonDeviceClose, yield)
			return
		}
		if !s.impliedExit(e, p, yield) || e.Kind != event.ProcessStart {
			return
		}
		exit := implied(e, event.ProcessExit, event.NoReason)
		exit.ExitStatus = event.UnknownStatus
		yield(&exit)
	}
}

// impliedExit reports whether yield wants more.
func (s *State) impliedExit(e *event.Event, p *process, yield func(*event.Event) bool) bool {
	static, kernels := s.livePrograms(e.PID)
	if !impliedFrees(e, p.inOrder(func(*buffer) bool { return true }), event.ReasonProcessExit, yield) {
		return false
	}
	for _, id := range sortedKeys(static) {
		end := implied(e, event.CBFree, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.CB, id, static[id]
		if !yield(&end) {
			return false
		}
	}
	for _, id := range sortedKeys(kernels) {
		end := implied(e, event.KernelUnload, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.Kernel, id, kernels[id]
		if !yield(&end) {
			return false
		}
	}
	return true
}

// livePrograms are the chips on which each program of the process has circular
// buffers, and kernels.
func (s *State) livePrograms(pid int) (static, kernels map[uint64][]int) {
	p := s.known(pid)
	if p == nil {
		return nil, nil
	}
	static, kernels = make(map[uint64][]int), make(map[uint64][]int)
	for _, device := range sortedKeys(p.chips) {
		for id, g := range p.chips[device].programs {
			if len(g.static) > 0 {
				static[id] = append(static[id], device)
			}
			if g.kernel != nil {
				kernels[id] = append(kernels[id], device)
			}
		}
	}
	return static, kernels
}

func impliedFrees(e *event.Event, buffers []*buffer, reason event.Reason, yield func(*event.Event) bool) bool {
	free := implied(e, event.Free, reason)
	for _, b := range buffers {
		free.Devices = slices.Clip(b.set.ids)
		free.Region, free.Layout = b.region, b.layout
		free.BufferID, free.Object, free.Allocator = b.id, b.object, b.allocator
		free.Address, free.SizeBytes, free.PageSizeBytes = b.address, b.size, b.pageSize
		free.BytesPerBank, free.Banks = b.perBank, b.banks
		free.BeforeAttach, free.Stack = b.before, b.stack
		if !yield(&free) {
			return false
		}
	}
	return true
}

// implied is an event at the time and in the process of e.
func implied(e *event.Event, kind event.Kind, reason event.Reason) event.Event {
	return event.Event{
		TimeNs: e.TimeNs, Kind: kind, PID: e.PID, TID: e.TID, Comm: e.Comm, Reason: reason,
	}
}
