package aggregate

import (
	"cmp"
	"iter"

	"ttmem/tracer/event"
)

// Checkpoint returns events that bring a new State to what this one knows, so that
// both have the same Snapshot and go on alike, and a new Profile to what is
// allocated now. What lives comes with the events that it came with; what is over
// comes as peaks, sums and the processes that are kept. They are in order of time,
// and nothing else is to be applied before them.
//
// They tell of the state as it is when they begin to be iterated, as those of
// Freeze do.
func (s *State) Checkpoint() iter.Seq[*event.Event] {
	return func(yield func(*event.Event) bool) { s.Freeze(nil)(yield) }
}

// A moment is an event to be made. At the same time, what is of one process stays
// together, in the order of steps; buffers are one step, in the order of their ids.
type moment struct {
	time, id   uint64
	rank, step uint32
	tells      teller
}

// A teller makes the event, of which the time is set. It does not change with the
// state.
type teller interface{ tell(*event.Event) }

func compareMoments(a, b moment) int {
	switch {
	case a.time != b.time:
		return cmp.Compare(a.time, b.time)
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	case a.step != b.step:
		return cmp.Compare(a.step, b.step)
	}
	return cmp.Compare(a.id, b.id)
}

// A rank is a process that is told of, or what is of none: a number in the order in
// which they are told, and how many steps were made of it.
type rank struct {
	number, step uint32
	// from and to are when the process began and ended: none of its events is told
	// outside.
	from, to uint64
}

// A collector lists moments: of one rank after the other.
type collector struct {
	moments []moment
	rank
}

// next begins a rank.
func (c *collector) next(from, to uint64) { c.rank = rank{c.number + 1, 0, from, to} }

// among adds to the latest step, in which ids make the order.
func (c *collector) among(time, id uint64, t teller) {
	c.moments = append(c.moments, moment{max(c.from, min(time, c.to)), id, c.number, c.step, t})
}

// now adds the next step, whose event is made at once: it does not change with the
// state.
func (c *collector) now(time uint64, fill func(*event.Event)) {
	m := new(made)
	fill((*event.Event)(m))
	c.step++
	c.among(time, 0, m)
}

// made is a teller of an event that was made before.
type made event.Event

func (m *made) tell(e *event.Event) {
	time := e.TimeNs
	*e = event.Event(*m)
	e.TimeNs = time
}

func (c *collector) failure(f *Failure, a *asked) {
	c.now(f.TimeNs, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.Comm, e.UID = event.AllocFailed, f.PID, f.TID, f.Comm, f.UID
		e.Devices, e.Region, e.Reason, e.Layout = f.Devices, a.region, a.reason, a.layout
		e.SizeBytes, e.PageSizeBytes, e.BytesPerBank, e.Banks = f.SizeBytes, a.pageSize, f.BytesPerBank, f.Banks
		e.ProgramID, e.Cores, e.Message, e.Stack = f.ProgramID, a.cores, f.Message, f.Stack
	})
	c.evidence(f)
}

// exited tells of a process that ended, of which there is nothing but its view.
func (c *collector) exited(x *exited) {
	p := &x.view
	end := p.Exit.TimeNs
	c.next(p.SinceNs, end)
	c.start(p)
	for i := range p.Devices {
		u, peaks := p.Devices[i].peaks()
		c.peaks(p.PID, p.Devices[i].ID, u, peaks, end)
	}
	c.left(p.PID, x.left)
	c.count(event.Total, p.PID, totalBeforeAttach, p.BeforeAttachBuffers)
	for i := range p.Devices {
		d := &p.Devices[i]
		c.describe(d.ID, d.Board, d.Arch, d.capacities())
	}
	c.now(end, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.ExitStatus = event.ProcessExit, p.PID, p.PID, event.UnknownStatus
		if p.Exit.Status != nil {
			e.ExitStatus = *p.Exit.Status
		}
	})
}

func (c *collector) start(p *Process) {
	c.now(p.SinceNs, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.Comm = event.ProcessStart, p.PID, p.PID, p.Comm
		e.Command, e.Library, e.Release, e.UID = p.Command, p.Library, p.Release, p.UID
		e.Container, e.Pod, e.ContainerPID = p.Container, p.Pod, p.ContainerPID
		e.AttachedLate = p.AttachedLate
	})
}

func (c *collector) allocator(pid int, address uint64, a *allocator) {
	c.now(a.since, func(e *event.Event) {
		e.Kind, e.PID, e.Allocator, e.Devices = event.DeviceOpen, pid, address, a.set.ids
		e.Board, e.Arch, e.Mesh, e.BeforeAttach = a.board, a.arch, a.mesh, a.beforeAttach
		e.Capacities = a.capacities
	})
}

// peaks tells what a process, or all of them, had most of on a chip. Those of
// kernels, of which no time is known, have the time end.
func (c *collector) peaks(pid, device int, u *usage, list peaks, end uint64) {
	before := len(c.moments)
	peak := func(time uint64, region event.Region, size, perBank uint64, more func(*event.Event)) {
		if size == 0 && perBank == 0 {
			return
		}
		c.now(time, func(e *event.Event) {
			e.Kind, e.PID, e.Devices, e.Region = event.Peak, pid, []int{device}, region
			e.SizeBytes, e.BytesPerBank = size, perBank
			more(e)
		})
	}
	nothing := func(*event.Event) {}
	l1 := list[event.L1]
	list[event.L1] = u.l1Buffers
	for i := range list {
		most := list[i]
		peak(most.time, event.Region(i), most.bytes, 0, func(e *event.Event) {
			if most.capacity > 0 {
				e.Capacities[i] = event.Capacity{Banks: 1, BytesPerBank: most.capacity}
			}
		})
	}
	peak(u.static.peakTime, event.CB, u.static.peak, 0, nothing)
	peak(l1.time, event.L1, l1.static, l1.bytes-l1.static, func(e *event.Event) {
		e.StaticKind = event.CircularBuffer
	})
	peak(end, event.Kernel, u.kernels.dramPeak, u.kernels.textPeak, nothing)
	if len(c.moments) == before && pid != 0 {
		c.now(end, func(e *event.Event) {
			e.Kind, e.PID, e.Devices = event.Peak, pid, []int{device}
		})
	}
}

// closed tells what the process had of a chip that it has closed.
func (c *collector) closed(pid, device int, chip *processChip) {
	if len(chip.open) > 0 || chip.own == (capacities{}) {
		return
	}
	c.now(c.to, func(e *event.Event) {
		e.Kind, e.PID, e.Devices, e.Capacities = event.Peak, pid, []int{device}, chip.own
	})
}

// left tells what the process left.
func (c *collector) left(pid int, shares []leftShare) {
	for i := range shares {
		l := &shares[i]
		c.now(c.to, func(e *event.Event) {
			e.Kind, e.PID, e.Region, e.Reason = event.Left, pid, l.region, l.reason
			e.Count, e.SizeBytes, e.BytesPerBank, e.Stack = l.Count, l.size, l.Bytes, l.Stack
			e.Banks, e.BeforeAttach = uint32(l.Places), l.BeforeAttach
		})
	}
}

// describe tells what is known of a chip at the end of this rank.
func (c *collector) describe(id int, board, arch string, capacities capacities) {
	c.now(c.to, func(e *event.Event) {
		e.Kind, e.Devices = event.DeviceOpen, []int{id}
		e.Board, e.Arch, e.Capacities = board, arch, capacities
	})
}

// count tells a number at the end of this rank.
func (c *collector) count(kind event.Kind, pid int, name string, n uint64) {
	c.now(c.to, func(e *event.Event) {
		e.Kind, e.PID, e.Cause, e.Count = kind, pid, name, n
	})
}
