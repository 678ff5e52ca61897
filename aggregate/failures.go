package aggregate

import (
	"cmp"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// fail adds a failed allocation. It does not create a process.
func (s *State) fail(e *event.Event) {
	failure := memory.Failure{
		TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm,
		Devices: append([]int{}, e.Devices...),
		Region:  e.Region.String(), Reason: e.Reason.String(),
		SizeBytes: e.SizeBytes, BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, Message: e.Message, Stack: e.Stack, Number: s.applied,
	}
	if p := s.known(e.PID); p != nil {
		p.name.comm = cmp.Or(p.name.comm, e.Comm)
		failure.UID, failure.Evidence = p.name.about.UID, s.evidence(p, e)
	}
	s.failures.add(failure)
}

// resolveStacks resolves the call stacks in failures and totals of a process that ended. An
// unresolved stack keeps all data about the process's code in memory.
func (s *State) resolveStacks(pid int) {
	for i := range s.failures.all {
		if f := &s.failures.all[i]; f.PID == pid {
			f.Stack.Calls()
			f.Evidence.ResolveStacks()
		}
	}
	for i := range s.exited {
		if x := &s.exited[i]; x.PID == pid {
			for j := range x.Unfreed {
				for k := range x.Unfreed[j].Holders {
					x.Unfreed[j].Holders[k].Stack.Calls()
				}
			}
		}
	}
}
