package aggregate

import (
	"iter"

	"ttmem/tracer/event"
)

// Implied returns the events that follow from e, for a stream in which each end is an event of
// its own. A DeviceClose and a ProcessExit imply the frees of live buffers; a ProcessExit also
// implies the end of circular buffers and kernels. A ProcessStart with the id of a running
// process implies the exit of that one. All have the time of e.
//
// A State does not need them. If they are applied, then before e:
//
//	for implied := range state.Implied(&e) {
//		emit(implied)
//		state.Apply(implied)
//	}
//	emit(&e)
//	state.Apply(&e)
//
// They come in order: buffers by the time of their allocation, then programs by their ids. They
// describe the state as it was when Implied was called. An event is valid until the next one.
func (s *State) Implied(e *event.Event) iter.Seq[*event.Event] {
	switch e.Kind {
	case event.DeviceClose, event.ProcessExit, event.ProcessStart:
		if p := s.known(e.PID); p != nil && !e.Reread {
			return p.implied(e)
		}
	}
	return func(func(*event.Event) bool) {}
}

// Completed returns a function that applies each event, after the events that it implies, and then
// calls then with it. A free is complete: it describes the freed buffer, and its Cause and Message are
// who held that, as in an Owner.
func (s *State) Completed(then func(*event.Event)) func(*event.Event) {
	each := func(e *event.Event) {
		if p := s.known(e.PID); e.Kind == event.Free && p != nil {
			o := p.owners.known[e.BufferID]
			e.Cause, e.Message = o.Path, o.Tensor
		}
		s.Complete(e)
		s.Apply(e)
		then(e)
	}
	return func(e *event.Event) {
		for implied := range s.Implied(e) {
			each(implied)
		}
		each(e)
	}
}

// implied returns the events that the end of a device or of the process implies.
func (p *process) implied(e *event.Event) iter.Seq[*event.Event] {
	reason, selected := event.ReasonProcessExit, func(*buffer) bool { return true }
	if e.Kind == event.DeviceClose {
		reason, selected = event.ReasonDeviceClose, func(b *buffer) bool { return b.allocator == e.Allocator }
	}
	implied := func(kind event.Kind) event.Event {
		return event.Event{TimeNs: e.TimeNs, Kind: kind, PID: e.PID, TID: e.TID, Comm: e.Comm, Reason: reason}
	}
	free, buffers := implied(event.Free), p.inOrder(selected) // maybe a million
	var rest []event.Event
	if e.Kind != event.DeviceClose {
		ends := func(kind event.Kind, region event.Region, devices map[uint64][]int) {
			for _, id := range sortedKeys(devices) {
				end := implied(kind)
				end.Region, end.ProgramID, end.Devices = region, id, devices[id]
				rest = append(rest, end)
			}
		}
		static, kernels := p.livePrograms()
		ends(event.CBFree, event.CB, static)
		ends(event.KernelUnload, event.Kernel, kernels)
	}
	if e.Kind == event.ProcessStart {
		exit := implied(event.ProcessExit)
		exit.Reason, exit.ExitStatus = event.NoReason, event.UnknownStatus
		rest = append(rest, exit)
	}
	return func(yield func(*event.Event) bool) {
		for _, b := range buffers {
			if b.setFree(&free); !yield(&free) {
				return
			}
		}
		for i := range rest {
			if !yield(&rest[i]) {
				return
			}
		}
	}
}

// setFree sets the fields of a Free to those of the buffer. No line of the program freed it.
func (b *buffer) setFree(free *event.Event) {
	free.Devices = b.Devices
	free.Region, free.Layout = b.Region, b.Layout
	free.BufferID, free.Object, free.Allocator = b.BufferID, b.Object, b.allocator
	free.Address, free.SizeBytes, free.PageSizeBytes = b.Address, b.SizeBytes, b.PageSizeBytes
	free.BytesPerBank, free.Banks = b.BytesPerBank, uint32(b.DataBanks)
	free.BeforeAttach = b.BeforeAttach
}

// livePrograms returns the chips on which each program has circular buffers, and kernels.
func (p *process) livePrograms() (static, kernels map[uint64][]int) {
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
