package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// Checkpoint returns an event that brings any State to what this one knows: both tell
// the same afterwards, and go on alike.
func (s *State) Checkpoint() *event.Event { return s.Freeze(nil)() }

// frozen is what is written of a State.
type frozen struct {
	chips     []*chip
	processes []*process
	buffers   [][]*buffer // of each process
}

// Freeze returns what makes the Checkpoint of the state as it is now: the state may
// change meanwhile, in another goroutine. Freeze itself writes all but the buffers, which
// never change, and lists these.
//
// Where wanted is not nil, processes of the users of which it says no are left out, with
// their failures and marks. Of a chip there is then what it is, and what the other
// processes have of it, with no peak but what there is now.
func (s *State) Freeze(wanted func(uid int) bool) func() *event.Event {
	if wanted == nil {
		return s.freeze(nil)
	}
	return s.freeze(func(_, uid int) bool { return wanted(uid) })
}

// OfProcesses is a Checkpoint with what is of some processes alone, as Freeze does it for
// users; nil where it makes no sense.
func OfProcesses(e *event.Event, pids []int) *event.Event {
	s := New()
	if s.Restore(e.State) != nil {
		return nil
	}
	return s.freeze(func(pid, _ int) bool { return pid == 0 || slices.Contains(pids, pid) })()
}

// freeze is Freeze of the processes that are wanted, by id and user. Marks have no process.
func (s *State) freeze(wanted func(pid, uid int) bool) func() *event.Event {
	c := &stateCodec{codec: newCodec()}
	c.b = append(c.b, stateVersion)
	partial := wanted != nil
	c.bool(&partial)
	of, copied := &frozen{}, *s
	if partial {
		copied = *s.only(wanted)
		for _, id := range sortedKeys(s.chips) {
			is := s.chips[id]
			one := &chip{id: id, board: is.board, arch: is.arch, capacities: is.capacities}
			one.pools = newPools(one, 0)
			of.chips = append(of.chips, one)
		}
	} else {
		wanted = func(_, _ int) bool { return true }
		for _, id := range sortedKeys(s.chips) {
			of.chips = append(of.chips, s.chips[id])
		}
	}
	copied.marks.list, copied.callMarks.list = copied.marks.newest(), copied.callMarks.newest()
	copied.failures.list = copied.failures.newest()
	for _, p := range s.byPID() {
		if wanted(p.pid, p.about.UID) {
			of.processes = append(of.processes, p)
			of.buffers = append(of.buffers, slices.AppendSeq(make([]*buffer, 0, p.buffers.len), p.buffers.all()))
		}
	}
	c.few(&copied, of)
	now := s.now
	return func() *event.Event {
		for i, p := range of.processes {
			c.b = slices.Grow(c.b, 16*len(of.buffers[i]))
			c.buffers(p, of.buffers[i])
		}
		return &event.Event{TimeNs: now, Kind: event.Checkpoint, State: &event.State{Data: c.b, Stacks: c.stacks}}
	}
}

// only is a copy of the state that knows of some users alone, but for what is in use.
func (s *State) only(wanted func(pid, uid int) bool) *State {
	mine := *s
	mine.exited, mine.sites, mine.failures, mine.exitedCount = nil, nil, failures{}, 0
	mine.marks, mine.callMarks = marks{}, marks{}
	mine.endedSurvivors, mine.otherSurvivors, mine.allocations = nil, Amount{}, 0
	unplaced := newPools(nil, 0)
	mine.unplaced = &unplaced
	mine.anomalies = Anomalies{}
	for _, m := range s.marks.newest() {
		if wanted(0, m.uid) {
			mine.marks.add(m)
		}
	}
	for _, f := range s.failures.newest() {
		if wanted(f.PID, f.UID) {
			mine.failures.list = append(mine.failures.list, f)
		}
	}
	mine.failures.count = uint64(len(mine.failures.list))
	for _, x := range s.exited {
		if wanted(x.view.PID, x.view.UID) {
			mine.exited = append(mine.exited, x)
		}
	}
	mine.exitedCount = uint64(len(mine.exited))
	for _, one := range s.sites {
		if wanted(one.set.process.pid, one.set.process.uid) {
			mine.sites = append(mine.sites, one)
		}
	}
	worked := make(map[*processName]bool)
	for _, p := range s.processes {
		worked[p.name] = wanted(p.pid, p.about.UID)
	}
	for _, v := range s.endedSurvivors {
		if of := v.site.process; wanted(of.pid, of.uid) {
			mine.endedSurvivors = append(mine.endedSurvivors, v)
			worked[of] = true
		}
	}
	for name, mineToo := range worked {
		if mineToo {
			mine.allocations += name.run.allocations
		}
	}
	return &mine
}

// Restore makes the state what was known at a Checkpoint. Whether all call sites are kept,
// and when tracing began, stay as they are. On an error the state is as before.
func (s *State) Restore(from *event.State) error {
	read := New()
	read.keepSites, read.began = s.keepSites, s.began
	if from == nil || len(from.Data) == 0 || from.Data[0] != stateVersion {
		return errState
	}
	c := &stateCodec{codec: codecOf(from.Data[1:], from.Stacks), state: read}
	var partial bool
	c.bool(&partial)
	of := &frozen{}
	c.few(read, of)
	for _, p := range of.processes {
		if c.bad {
			return errState
		}
		c.buffers(p, nil)
	}
	if c.bad || len(c.b) > 0 {
		return errState
	}
	if partial {
		read.restartPeaks()
		read.beginning = beginning{Point{read.applied, read.now}, true}
	}
	*s = *read
	return nil
}

// restartPeaks makes what there is now the peaks of all chips, and the time the beginning.
// Of what was before there are the peaks of the processes.
func (s *State) restartPeaks() {
	for _, one := range s.sites {
		for c := range one.all() {
			clear(c.atPeak)
		}
	}
	for _, c := range s.chips {
		for i := range c.pools {
			q := &c.pools[i]
			q.level, q.levelStatic = q.bytes, q.static
		}
		u, now := &c.used, s.now
		u.l1Buffers = peak{bytes: u.regions[event.L1].Bytes, time: now, capacity: total(c.capacities[event.L1])}
		if c.pools[event.L1].fits() {
			u.static.peak, u.static.peakTime = u.static.cores.Max(), now
		}
		u.kernels.dramPeak = u.kernels.dram
	}
	for _, p := range s.processes {
		for _, of := range p.chips {
			for i, before := range of.peaks {
				of.chip.pools[i].earlier.raise(before)
			}
			of.chip.used.kernels.textPeak = max(of.chip.used.kernels.textPeak, of.textMax())
		}
	}
	s.restart(s.now)
}
