package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// Implied returns the events that e stands for besides itself, for a stream
// that has each end as an event: the frees of what is live at a
// DeviceClose or a ProcessExit and, at the latter, the ends of programs'
// circular buffers and kernels. A ProcessStart of a process that is known
// already implies the exit of the earlier one. They have the time of e.
//
// A State does not need them. Where they are applied, that is before e:
//
//	for implied := state.Implied(&e); implied.Next(); {
//		emit(implied.Event())
//		state.Apply(implied.Event())
//	}
//	emit(&e)
//	state.Apply(&e)
//
// They come in order: buffers by the time of their allocation, then programs by
// their ids. They tell of the state as it was when Implied was called. Nil, which is what
// most events imply, has none.
func (s *State) Implied(e *event.Event) *Implied {
	switch e.Kind {
	case event.DeviceClose, event.ProcessExit, event.ProcessStart:
	default:
		return nil
	}
	p := s.known(e.PID)
	if p == nil {
		return nil
	}
	if e.Kind == event.DeviceClose {
		return &Implied{
			free:    impliedBy(e, event.Free, event.ReasonDeviceClose),
			buffers: p.inOrder(func(b *buffer) bool { return b.allocator == e.Allocator }),
		}
	}
	i := &Implied{
		free:    impliedBy(e, event.Free, event.ReasonProcessExit),
		buffers: p.inOrder(func(*buffer) bool { return true }),
	}
	static, kernels := s.livePrograms(e.PID)
	for _, id := range sortedKeys(static) {
		end := impliedBy(e, event.CBFree, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.CB, id, static[id]
		i.rest = append(i.rest, end)
	}
	for _, id := range sortedKeys(kernels) {
		end := impliedBy(e, event.KernelUnload, event.ReasonProcessExit)
		end.Region, end.ProgramID, end.Devices = event.Kernel, id, kernels[id]
		i.rest = append(i.rest, end)
	}
	if e.Kind == event.ProcessStart {
		exit := impliedBy(e, event.ProcessExit, event.NoReason)
		exit.ExitStatus = event.UnknownStatus
		i.rest = append(i.rest, exit)
	}
	return i
}

// Counts reports whether a Point counts the event.
func Counts(e *event.Event) bool { return e.Kind != event.Checkpoint && !isImplied(e) }

// isImplied reports whether some streams of the same events may have this one and others
// not: because another event implies it, or a recording adds it. It is not counted.
func isImplied(e *event.Event) bool {
	return isEnd(e.Reason) || e.Kind == event.ProcessExit || e.Kind == event.Lost
}

// Implied are events that another one implies. There may be a million frees, which are
// made one by one.
type Implied struct {
	buffers []*buffer // that are still to be freed
	free    event.Event
	rest    []event.Event // after them
	event   *event.Event
}

// Next goes on to the next event, and reports whether there is one.
func (i *Implied) Next() bool {
	switch {
	case i == nil:
		return false
	case len(i.buffers) > 0:
		i.setFree(i.buffers[0])
		i.event, i.buffers = &i.free, i.buffers[1:]
	case len(i.rest) > 0:
		i.event, i.rest = &i.rest[0], i.rest[1:]
	default:
		return false
	}
	return true
}

// Event is the one that Next went on to. It is valid until Next is called again.
func (i *Implied) Event() *event.Event { return i.event }

func (i *Implied) setFree(b *buffer) {
	free := &i.free
	free.Devices = slices.Clip(b.set.ids)
	free.Region, free.Layout = b.region, b.layout
	free.BufferID, free.Object, free.Allocator = b.id, b.object, b.allocator
	free.Address, free.SizeBytes, free.PageSizeBytes = b.address, b.size, b.pageSize
	free.BytesPerBank, free.Banks = b.perBank, b.banks
	free.BeforeAttach, free.Stack = b.before, b.stack
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

// impliedBy is an event at the time and in the process of e.
func impliedBy(e *event.Event, kind event.Kind, reason event.Reason) event.Event {
	return event.Event{
		TimeNs: e.TimeNs, Kind: kind, PID: e.PID, TID: e.TID, Comm: e.Comm, Reason: reason,
	}
}
