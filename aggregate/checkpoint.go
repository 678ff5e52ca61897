package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/tracer/event"
)

// Checkpoint returns events that bring a new State to what this one knows, so that
// both have the same Snapshot and go on alike, and a new Profile to what is
// allocated now. What lives comes with the events that it came with; what is over
// comes as peaks, sums and the processes that are kept. They are in order of time,
// and nothing else is to be applied before them.
//
// The state must not change while they are iterated, and each event is only valid
// until the next one. At their start, the buffers that live are put in order, which
// takes 40 bytes for each.
func (s *State) Checkpoint() iter.Seq[*event.Event] {
	return func(yield func(*event.Event) bool) {
		c := s.collect()
		slices.SortFunc(c.moments, compareMoments)
		var e event.Event
		for i := range c.moments {
			m := &c.moments[i]
			e = event.Event{TimeNs: m.time}
			m.tells.tell(&e)
			if !yield(&e) {
				return
			}
		}
	}
}

// A moment is an event to be made. At the same time, what is of one process stays
// together, in the order of steps; buffers are one step, in the order of their ids.
type moment struct {
	time, id   uint64
	rank, step uint32
	tells      teller
}

// A teller makes the event, of which the time is set.
type teller interface{ tell(*event.Event) }

// tell is a teller that is a function.
type tell func(*event.Event)

func (t tell) tell(e *event.Event) { t(e) }

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

// A collector lists moments: of one rank after the other.
type collector struct {
	moments    []moment
	rank, step uint32
	// from and to are when the process of this rank began and ended: none of its
	// events is told outside.
	from, to uint64
}

// next begins a rank.
func (c *collector) next(from, to uint64) {
	c.rank, c.step = c.rank+1, 0
	c.from, c.to = from, to
}

func (c *collector) add(time uint64, t tell) {
	c.step++
	c.moments = append(c.moments, moment{max(c.from, min(time, c.to)), 0, c.rank, c.step, t})
}

// collect lists what is to be told. Failures come first, as they need no process;
// processes that ended come before those that run, which may have their ids.
func (s *State) collect() *collector {
	buffers := 0
	for _, p := range s.processes {
		buffers += len(p.buffers)
	}
	c := &collector{moments: make([]moment, 0, buffers+1000), to: s.now}
	failed, asked := s.failures.newest(), newest(s.failures.asked)
	for i := range failed {
		c.failure(&failed[i], &asked[i])
	}
	for _, id := range sortedKeys(s.chips) {
		c.peaks(0, id, &s.chips[id].used, s.now)
	}
	for i := range s.exited {
		c.exited(&s.exited[i])
	}
	for _, p := range s.byPID() {
		c.running(p, s.now)
	}
	c.next(s.now, s.now)
	for _, id := range sortedKeys(s.chips) {
		chip := s.chips[id]
		c.describe(id, chip.board, chip.arch, chip.capacities)
	}
	for _, cause := range sortedKeys(s.lost) {
		c.count(event.Lost, 0, cause, s.lost[cause])
	}
	for _, name := range totals {
		c.count(event.Total, 0, name, *s.total(name))
	}
	return c
}

func (c *collector) failure(f *Failure, a *asked) {
	c.add(f.TimeNs, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.Comm, e.UID = event.AllocFailed, f.PID, f.TID, f.Comm, f.UID
		e.Devices, e.Region, e.Reason, e.Layout = f.Devices, a.region, a.reason, a.layout
		e.SizeBytes, e.PageSizeBytes, e.BytesPerBank, e.Banks = f.SizeBytes, a.pageSize, f.BytesPerBank, f.Banks
		e.ProgramID, e.Cores, e.Message, e.Stack = f.ProgramID, a.cores, f.Message, f.Stack
	})
}

// exited tells of a process that ended, of which there is nothing but its view.
func (c *collector) exited(x *exited) {
	p := &x.view
	end := p.Exit.TimeNs
	c.next(p.SinceNs, end)
	c.start(p)
	for i := range p.Devices {
		c.peaks(p.PID, p.Devices[i].ID, p.Devices[i].peaks(), end)
	}
	c.left(p.PID, x.left)
	c.count(event.Total, p.PID, totalBeforeAttach, p.BeforeAttachBuffers)
	for i := range p.Devices {
		d := &p.Devices[i]
		c.describe(d.ID, d.Board, d.Arch, d.capacities())
	}
	c.add(end, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.ExitStatus = event.ProcessExit, p.PID, p.PID, event.UnknownStatus
		if p.Exit.Status != nil {
			e.ExitStatus = *p.Exit.Status
		}
	})
}

// running tells of a process that runs, with all that it has.
func (c *collector) running(p *process, now uint64) {
	c.next(p.since, now)
	view := p.view()
	c.start(&view)
	for _, address := range sortedKeys(p.allocators) {
		c.allocator(p.pid, address, p.allocators[address])
	}
	for _, id := range sortedKeys(p.chips) {
		c.peaks(p.pid, id, &p.chips[id].used, now)
		c.closed(p.pid, id, p.chips[id])
	}
	c.programs(p)
	c.step++
	for id, b := range p.buffers {
		c.moments = append(c.moments, moment{max(c.from, b.since), id, c.rank, c.step, b})
	}
	c.left(p.pid, p.leftShares(maxHolders))
	c.count(event.Total, p.pid, totalBeforeAttach, p.beforeAttach)
}

func (c *collector) start(p *Process) {
	c.add(p.SinceNs, func(e *event.Event) {
		e.Kind, e.PID, e.TID, e.Comm = event.ProcessStart, p.PID, p.PID, p.Comm
		e.Command, e.Library, e.Release, e.UID = p.Command, p.Library, p.Release, p.UID
		e.Container, e.Pod, e.ContainerPID = p.Container, p.Pod, p.ContainerPID
		e.AttachedLate = p.AttachedLate
	})
}

func (c *collector) allocator(pid int, address uint64, a *allocator) {
	c.add(a.since, func(e *event.Event) {
		e.Kind, e.PID, e.Allocator, e.Devices = event.DeviceOpen, pid, address, a.set.ids
		e.Board, e.Arch, e.Mesh, e.BeforeAttach = a.board, a.arch, a.mesh, a.beforeAttach
		e.Capacities = a.capacities
	})
}

// tell makes the Alloc of the buffer.
func (b *buffer) tell(e *event.Event) {
	e.Kind, e.PID, e.TID, e.Comm, e.Stack = event.Alloc, b.set.pid, int(b.tid), b.comm, b.stack
	e.Devices, e.Region, e.Layout, e.BeforeAttach = b.set.ids, b.region, b.layout, b.beforeAttach
	e.BufferID, e.Object, e.Allocator, e.Address = b.id, b.object, b.allocator, b.address
	e.SizeBytes, e.PageSizeBytes, e.BytesPerBank, e.Banks = b.size, b.pageSize, b.perBank, b.banks
}

// programs tells of circular buffers and kernels, each with all the chips that it
// came with and is still on.
func (c *collector) programs(p *process) {
	devices := make(map[*origin][]int)
	for _, device := range sortedKeys(p.chips) {
		programs := p.chips[device].programs
		for _, id := range sortedKeys(programs) {
			program := func(from *origin, region event.Region, t tell) {
				devices[from] = append(devices[from], device)
				if len(devices[from]) > 1 {
					return
				}
				c.add(from.since, func(e *event.Event) {
					e.PID, e.TID, e.Comm, e.Stack = p.pid, from.tid, from.comm, from.stack
					e.BeforeAttach, e.Devices, e.Region, e.ProgramID = from.beforeAttach, devices[from], region, id
					t(e)
				})
			}
			for _, entry := range programs[id].static {
				program(entry.from, event.CB, entry.tell)
			}
			if k := programs[id].kernel; k != nil {
				program(k.from, event.Kernel, k.tell)
			}
		}
	}
}

func (s *staticEntry) tell(e *event.Event) {
	e.Kind, e.StaticKind, e.Global, e.Cores = event.CBAlloc, s.kind, s.global, s.place.set.ranges
	e.Address, e.SizeBytes = s.place.start, s.place.end-s.place.start
}

func (k *kernel) tell(e *event.Event) {
	e.Kind, e.SizeBytes, e.BytesPerBank = event.KernelLoad, k.dram, k.text
}

// peaks tells what a process, or all of them, had most of on a chip. Those of
// kernels, of which no time is known, have the time end.
func (c *collector) peaks(pid, device int, u *usage, end uint64) {
	before := len(c.moments)
	peak := func(time uint64, region event.Region, size, perBank uint64, more tell) {
		if size == 0 && perBank == 0 {
			return
		}
		c.add(time, func(e *event.Event) {
			e.Kind, e.PID, e.Devices, e.Region = event.Peak, pid, []int{device}, region
			e.SizeBytes, e.BytesPerBank = size, perBank
			more(e)
		})
	}
	nothing := func(*event.Event) {}
	for i := range u.regions {
		r := &u.regions[i]
		peak(r.peakTime, event.Region(i), r.peak, 0, func(e *event.Event) {
			if r.peakCapacity > 0 {
				e.Capacities[i] = event.Capacity{Banks: 1, BytesPerBank: r.peakCapacity}
			}
		})
	}
	peak(u.static.peakTime, event.CB, u.static.peak, 0, nothing)
	peak(u.l1Peak.time, event.L1, u.l1Peak.static, u.l1Peak.buffers, func(e *event.Event) {
		e.StaticKind = event.CircularBuffer
	})
	peak(end, event.Kernel, u.kernels.dramPeak, u.kernels.textPeak, nothing)
	if len(c.moments) == before && pid != 0 {
		c.add(end, func(e *event.Event) {
			e.Kind, e.PID, e.Devices = event.Peak, pid, []int{device}
		})
	}
}

// closed tells what the process had of a chip that it has closed.
func (c *collector) closed(pid, device int, chip *processChip) {
	if len(chip.open) > 0 || chip.own == (capacities{}) {
		return
	}
	c.add(c.to, func(e *event.Event) {
		e.Kind, e.PID, e.Devices, e.Capacities = event.Peak, pid, []int{device}, chip.own
	})
}

// left tells what the process left.
func (c *collector) left(pid int, shares []leftShare) {
	for i := range shares {
		l := &shares[i]
		c.add(c.to, func(e *event.Event) {
			e.Kind, e.PID, e.Region, e.Reason = event.Left, pid, l.region, l.reason
			e.Count, e.SizeBytes, e.BytesPerBank, e.Stack = l.Count, l.size, l.Bytes, l.Stack
		})
	}
}

// describe tells what is known of a chip at the end of this rank.
func (c *collector) describe(id int, board, arch string, capacities capacities) {
	c.add(c.to, func(e *event.Event) {
		e.Kind, e.Devices = event.DeviceOpen, []int{id}
		e.Board, e.Arch, e.Capacities = board, arch, capacities
	})
}

// count tells a number at the end of this rank.
func (c *collector) count(kind event.Kind, pid int, name string, n uint64) {
	c.add(c.to, func(e *event.Event) {
		e.Kind, e.PID, e.Cause, e.Count = kind, pid, name, n
	})
}
