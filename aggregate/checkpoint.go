package aggregate

import (
	"errors"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// Checkpoint returns an event that makes any State equal to this one.
func (s *State) Checkpoint() *event.Event { return s.Freeze(nil)() }

// frozen is the part of a State that is written.
type frozen struct {
	chips     []*chip
	processes []*process
	buffers   [][]*buffer // of each process
}

// Freeze returns a function that makes the Checkpoint of the state as it is now. It may run
// in another goroutine while the state changes. Freeze itself writes everything but the
// buffers, which never change, and lists these.
//
// If wanted is not nil, the checkpoint has only the processes, failures and marks of the
// users that it selects. Peaks of chips are then what these processes have now.
func (s *State) Freeze(wanted func(uid int) bool) func() *event.Event {
	if wanted == nil {
		return s.freeze(nil)
	}
	return s.freeze(func(_, uid int) bool { return wanted(uid) })
}

// OfProcesses reduces a Checkpoint to some processes, as Freeze does for users; nil if the
// checkpoint is invalid.
func OfProcesses(e *event.Event, pids []int) *event.Event {
	s := New()
	if s.Restore(e.State) != nil {
		return nil
	}
	return s.freeze(func(pid, _ int) bool { return pid == 0 || slices.Contains(pids, pid) })()
}

// freeze is Freeze for processes, selected by id and user. Marks have no process.
func (s *State) freeze(wanted func(pid, uid int) bool) func() *event.Event {
	c := &stateCodec{Encoding: memory.Encoding{Codec: codec.NewWriter()}}
	c.Data = append(c.Data, stateVersion)
	partial := wanted != nil
	c.Bool(&partial)
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
		if wanted(p.pid, p.name.about.UID) {
			of.processes = append(of.processes, p)
			of.buffers = append(of.buffers, slices.AppendSeq(make([]*buffer, 0, p.buffers.Len()), p.buffers.All()))
		}
	}
	c.few(&copied, of)
	now := s.now
	return func() *event.Event {
		for i, p := range of.processes {
			c.Data = slices.Grow(c.Data, 16*len(of.buffers[i]))
			c.buffers(p, of.buffers[i])
		}
		return &event.Event{TimeNs: now, Kind: event.Checkpoint, State: &event.State{Data: c.Data, Stacks: c.Stacks}}
	}
}

// only returns a copy of the state with only some users, except for what is in use.
func (s *State) only(wanted func(pid, uid int) bool) *State {
	mine := *s
	mine.exited, mine.sites, mine.failures, mine.exitedCount = nil, nil, failures{}, 0
	mine.marks, mine.callMarks = marks{}, marks{}
	mine.endedSurvivors, mine.otherSurvivors, mine.allocations = nil, memory.Amount{}, 0
	unplaced := newPools(nil, 0)
	mine.unplaced = &unplaced
	mine.anomalies = memory.Anomalies{}
	for _, m := range s.marks.newest() {
		if wanted(0, m.UID) {
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
		if wanted(x.PID, x.UID) {
			mine.exited = append(mine.exited, x)
		}
	}
	mine.exitedCount = uint64(len(mine.exited))
	for _, one := range s.sites {
		if wanted(one.set.process.pid, one.set.process.about.UID) {
			mine.sites = append(mine.sites, one)
		}
	}
	worked := make(map[*processName]bool)
	for _, p := range s.processes {
		worked[p.name] = wanted(p.pid, p.name.about.UID)
	}
	for _, v := range s.endedSurvivors {
		if of := v.process; wanted(of.pid, of.about.UID) {
			mine.endedSurvivors = append(mine.endedSurvivors, v)
			worked[of] = true
		}
	}
	for name, mineToo := range worked {
		if mineToo {
			mine.allocations += name.run.Allocations
		}
	}
	return &mine
}

var errCheckpoint = errors.New("the checkpoint makes no sense")

// Restore sets the state to that of a Checkpoint. KeepSites and Begin stay in effect. On an
// error the state does not change.
func (s *State) Restore(from *event.State) error {
	read := New()
	read.keepSites, read.began = s.keepSites, s.began
	if from == nil || len(from.Data) == 0 || from.Data[0] != stateVersion {
		return errCheckpoint
	}
	c := &stateCodec{Encoding: memory.Encoding{Codec: codec.NewReader(from.Data[1:], from.Stacks)}, state: read}
	var partial bool
	c.Bool(&partial)
	of := &frozen{}
	c.few(read, of)
	for _, p := range of.processes {
		if c.Bad {
			return errCheckpoint
		}
		c.buffers(p, nil)
	}
	if c.Bad || len(c.Data) > 0 {
		return errCheckpoint
	}
	if partial {
		read.restartPeaks()
		read.beginning = beginning{memory.Point{Number: read.applied, TimeNs: read.now}, true}
	}
	*s = *read
	return nil
}

// restartPeaks makes the present use the peak of each chip, and the present time the
// beginning. Of earlier peaks only those of the processes stay.
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

// count counts a buffer that was live at a checkpoint. It changes no peak.
func (s *State) count(p *process, b *buffer) {
	t := b.tally()
	p.buffers.Put(b.id, b)
	p.live[b.region].add(t.on(len(b.set.chips)))
	s.countIn(b.callSite, t, b.since)
	b.loadCores()
	for _, q := range b.set.poolsOf(b.region) {
		q.bytes += t.counts(b.region)
	}
	for _, c := range b.set.chips {
		for _, u := range c.both() {
			u.regions[b.region].add(t)
		}
	}
}

// count counts a circular buffer of a program; first is true for the program's first one. It
// changes no peak.
func (c *processChip) count(entry *staticEntry, first bool) {
	for _, u := range c.both() {
		t := &u.static
		if first {
			t.programs++
		}
		if entry.global {
			t.global++
			continue
		}
		t.count++
		t.sum += entry.place.Bytes()
		t.cores.Add(entry.place)
	}
	c.chip.countCores()
}

func (c *processChip) countKernel(k *kernel) {
	for _, u := range c.both() {
		t := &u.kernels
		t.programs++
		t.dram += k.dram
		t.textSum += k.text
	}
}
