package aggregate

import (
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
//	for _, implied := range state.Implied(&e) {
//		emit(&implied)
//		state.Apply(&implied)
//	}
//	emit(&e)
//	state.Apply(&e)
//
// They come in order: buffers by the time of their allocation, then programs by
// their ids.
func (s *State) Implied(e *event.Event) []event.Event {
	switch e.Kind {
	case event.DeviceClose:
		return impliedFrees(e, s.HeldByAllocator(e.PID, e.Allocator), event.ReasonDeviceClose)
	case event.ProcessExit:
		return s.impliedExit(e)
	case event.ProcessStart:
		if s.known(e.PID) == nil {
			return nil
		}
		exit := implied(e, event.ProcessExit, event.NoReason)
		exit.ExitStatus = event.UnknownStatus
		return append(s.impliedExit(e), exit)
	}
	return nil
}

func (s *State) impliedExit(e *event.Event) []event.Event {
	list := impliedFrees(e, s.HeldByProcess(e.PID), event.ReasonProcessExit)
	static, kernels := s.livePrograms(e.PID)
	for _, id := range sortedKeys(static) {
		end := implied(e, event.CBFree, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.CB, id, static[id]
		list = append(list, end)
	}
	for _, id := range sortedKeys(kernels) {
		end := implied(e, event.KernelUnload, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.Kernel, id, kernels[id]
		list = append(list, end)
	}
	return list
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

func impliedFrees(e *event.Event, held []Held, reason event.Reason) []event.Event {
	list := make([]event.Event, 0, len(held))
	for _, h := range held {
		free := implied(e, event.Free, reason)
		free.Devices = slices.Clip(h.Devices)
		free.Region, free.Layout = h.Region, h.Layout
		free.BufferID, free.Object, free.Allocator = h.BufferID, h.Object, h.Allocator
		free.Address, free.SizeBytes, free.PageSizeBytes = h.Address, h.SizeBytes, h.PageSizeBytes
		free.BytesPerBank, free.Banks = h.BytesPerBank, h.Banks
		free.BeforeAttach, free.Stack = h.BeforeAttach, h.Stack
		list = append(list, free)
	}
	return list
}

// implied is an event at the time and in the process of e.
func implied(e *event.Event, kind event.Kind, reason event.Reason) event.Event {
	return event.Event{
		TimeNs: e.TimeNs, Kind: kind, PID: e.PID, TID: e.TID, Comm: e.Comm, Reason: reason,
	}
}
