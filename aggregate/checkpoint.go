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

// Freeze returns a function that makes the Checkpoint of the state as it is now. It may run
// in another goroutine while the state changes. Freeze itself writes everything but the
// buffers, which never change, and lists these.
//
// If selected is not nil, the checkpoint has only the processes, failures and marks of the
// users that it selects. A chip that other users have used has the peaks of all users, but only
// the call sites of the selected ones.
func (s *State) Freeze(selected func(uid int) bool) func() *event.Event {
	if selected == nil {
		return s.freeze(false)
	}
	some := s.only(func(_, uid int) bool { return selected(uid) })
	for id, c := range s.chips {
		if some.chips[id] = c; !c.usedOnlyBy(selected) {
			one := *c
			one.users, one.pools = nil, c.pools.SharedBy(selected)
			some.chips[id] = &one
		}
	}
	return some.freeze(true)
}

// OfProcesses reduces a Checkpoint to some processes, as Freeze does for users; nil if the
// checkpoint is invalid.
func OfProcesses(e *event.Event, pids []int) *event.Event {
	s := New()
	if s.Restore(e.State) != nil {
		return nil
	}
	return s.only(func(pid, _ int) bool { return pid == 0 || slices.Contains(pids, pid) }).freeze(true)()
}

// freeze is Freeze; partial is true for a state that has only some of the processes.
func (s *State) freeze(partial bool) func() *event.Event {
	c := &stateCodec{Codec: codec.NewWriter()}
	c.Data = append(c.Data, stateVersion)
	c.Bool(&partial)
	processes := c.allButBuffers(s)
	buffers := make([][]*buffer, len(processes))
	for i, p := range processes {
		buffers[i] = slices.AppendSeq(make([]*buffer, 0, p.buffers.Len()), p.buffers.All())
	}
	now := s.now
	return func() *event.Event {
		for i, p := range processes {
			c.Data = slices.Grow(c.Data, 16*len(buffers[i]))
			c.buffers(p, buffers[i])
		}
		return &event.Event{TimeNs: now, Kind: event.Checkpoint, State: &event.State{Data: c.Data, Stacks: c.Stacks}}
	}
}

// only returns a state with only some processes, selected by id and user, and their marks and
// failures, for a partial checkpoint. Marks have no process.
func (s *State) only(selected func(pid, uid int) bool) *State {
	some := New()
	some.now, some.first, some.restored, some.applied = s.now, s.first, s.restored, s.applied
	some.freshSince, some.lost, some.beginning, some.keptSites = s.freshSince, s.lost, s.beginning, s.keptSites
	some.lostEvents = memory.Sum(s.lost)
	some.marks = s.marks.Only(func(m *memory.Mark) bool { return selected(0, m.UID) })
	some.ownMarks = s.ownMarks.Only(func(m *memory.Mark) bool { return selected(0, m.UID) })
	for _, o := range s.overlaps.List() {
		if o, seen := o.For(selected); seen {
			some.overlaps.Add(o)
		}
	}
	for _, u := range s.unsafe {
		if selected(u.PID, u.UID) {
			some.unsafe = append(some.unsafe, u)
			some.unsafeCount += u.Count
		}
	}
	some.afterFree = filter(s.afterFree, func(a memory.AfterFree) bool { return selected(a.PID, a.UID) })
	failed := func(f *memory.Failure) bool { return selected(f.PID, f.UID) }
	some.failures, some.operationFailures = s.failures.Only(failed), s.operationFailures.Only(failed)
	some.exited.list = filter(s.exited.list, func(x *exitedProcess) bool { return selected(x.PID, x.UID) })
	for i := range some.exited.list {
		some.lostEvents += some.exited.list[i].Count()
	}
	some.exited.count = uint64(len(some.exited.list))
	for id, c := range s.chips {
		one := newChip(id, some.first, some.ran)
		some.chips[id] = one
		one.board, one.arch, one.capacities, one.partial = c.board, c.arch, c.capacities, true
	}
	isSelected := func(p *processName) bool { return selected(p.pid, p.about.UID) }
	some.sites = filter(s.sites, func(c *callSite) bool { return isSelected(c.set.process) })
	some.operations.list = filter(s.operations.list, func(op *operation) bool { return isSelected(op.set.process) })
	some.operations.count = uint64(len(some.operations.list))
	some.survivors.ended = filter(s.survivors.ended, func(v *endedSite) bool { return isSelected(v.process) })
	some.temporaries.forgotten = filter(s.temporaries.forgotten, func(one forgottenSite) bool { return isSelected(one.process) })
	some.held = filter(s.held, func(h heldBuffer) bool { return isSelected(h.set.process) })
	counted := make(map[*processName]bool)
	for pid, p := range s.processes {
		if isSelected(p.name) {
			some.processes[pid] = p
			some.lostEvents += p.losses.Count()
			counted[p.name] = true
		}
	}
	for _, v := range some.survivors.ended {
		counted[v.process] = true
	}
	for p := range counted {
		some.survivors.allocations += p.run.Allocations
	}
	return some
}

func filter[T any](list []T, selected func(T) bool) (some []T) {
	for _, one := range list {
		if selected(one) {
			some = append(some, one)
		}
	}
	return some
}

var errCheckpoint = errors.New("invalid checkpoint")

// Restore sets the state to that of a Checkpoint. KeepSites and Begin stay in effect. On an
// error the state does not change, and from is marked as invalid.
func (s *State) Restore(from *event.State) (err error) {
	defer func() {
		if err != nil && from != nil {
			from.Invalid = true
		}
	}()
	read := New()
	read.keepSites, read.began, read.restoring, *read.ran = s.keepSites, s.began, true, *s.ran
	read.events, read.examined, read.compared = s.events, s.examined, s.compared
	if from == nil || len(from.Data) == 0 || from.Data[0] != stateVersion {
		return errCheckpoint
	}
	c := &stateCodec{Codec: codec.NewReader(from.Data[1:], from.Stacks), state: read}
	var partial bool
	c.Bool(&partial)
	for _, p := range c.allButBuffers(read) {
		if c.Bad {
			return errCheckpoint
		}
		c.buffers(p, nil)
	}
	if c.Bad || len(c.Data) > 0 {
		return errCheckpoint
	}
	for _, p := range read.processes {
		p.kept.ofAllocations.Restore(read.rooms.allocations, p.name.user(), p.kept.allocations)
		p.kept.ofLinks.Restore(read.rooms.links, p.name.user(), p.kept.links)
	}
	if read.rooms.allocations.Full() {
		return errCheckpoint
	}
	read.restoring = false
	for _, q := range poolsOf(append(read.byID(), read.unplaced)...) {
		q.AddOthers()
	}
	if partial {
		read.restartPartial()
		read.beginning = beginning{memory.Point{Number: read.applied, TimeNs: read.now}, true}
	}
	for _, p := range read.processes {
		p.state = s
	}
	*s = *read
	return nil
}

// count adds a circular buffer of a program; first is true for the program's first one. It
// changes no peak.
func (c *processChip) count(entry *staticEntry, first bool) {
	for _, u := range c.both() {
		if first {
			u.CountPrograms(1)
		}
		u.CountStatic(1, entry.place, entry.global)
	}
}
