package page

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Supplement has what documents have beside times and process ids: the times by the wall clock, and the
// users of the processes.
type Supplement struct {
	Clock
	names UserNames
	// users are the users by PID; "" for one that is not known, or if several had the PID.
	users map[int]string
}

// NewSupplement returns the supplement for documents about the processes of snapshots.
func NewSupplement(clock Clock, of ...*memory.Snapshot) *Supplement {
	s := &Supplement{Clock: clock, names: make(UserNames), users: make(map[int]string)}
	for _, snapshot := range of {
		s.Add(snapshot.Processes)
	}
	return s
}

// Add adds processes. They may have ended, and others may have had the same PID.
func (s *Supplement) Add(processes []memory.Process) {
	for i := range processes {
		p := &processes[i]
		user := s.names.Of(p)
		if other, known := s.users[p.PID]; known && other != user {
			user = ""
		}
		s.users[p.PID] = user
	}
}

// Apply applies an event: of a process that begins, earlier ones with its PID have ended.
func (s *Supplement) Apply(e *event.Event) {
	if e.Kind == event.ProcessStart {
		s.users[e.PID] = s.names.Of(&memory.Process{About: memory.About{UID: e.UID, Command: e.Started().Command, Library: e.Started().Library}})
	}
}

// User returns the user of a process; "" if it is not known.
func (s *Supplement) User(pid int) string { return s.users[pid] }

// SeveralUsers reports whether the processes have different users.
func (s *Supplement) SeveralUsers() bool { return len(s.names) > 1 }
