package aggregate

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// maxFailures is the number of failures that a State keeps.
const maxFailures = 1000

// failures is a list that only grows at its end, so that snapshots can share it.
type failures struct {
	count uint64
	list  []memory.Failure
}

// fail adds a failed allocation. It does not create a process.
func (s *State) fail(e *event.Event) {
	uid := 0
	var found *memory.Evidence
	if p := s.known(e.PID); p != nil {
		found = p.evidence(e)
		if p.name.comm == "" {
			p.name.comm = e.Comm
		}
		uid = p.name.about.UID
	}
	s.failures.add(e, uid, found, s.applied)
}

func (f *failures) add(e *event.Event, uid int, found *memory.Evidence, number uint64) {
	f.count++
	if len(f.list) == 2*maxFailures {
		f.list = slices.Clone(newest(f.list))
	}
	f.list = append(f.list, memory.Failure{
		TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm,
		Devices: append([]int{}, e.Devices...),
		Region:  e.Region.String(), Reason: e.Reason.String(),
		SizeBytes: e.SizeBytes, BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, Message: e.Message, UID: uid, Stack: e.Stack, Evidence: found, Number: number,
	})
}

// resolveStacks resolves the call stacks that are kept of a process that ended. An
// unresolved stack refers to all that is known of the process's code.
func (s *State) resolveStacks(pid int) {
	for i := range s.failures.list {
		if f := &s.failures.list[i]; f.PID == pid {
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

// newest returns the failures that are kept, oldest first.
func (f *failures) newest() []memory.Failure { return slices.Clip(newest(f.list)) }

func newest[T any](list []T) []T { return list[max(0, len(list)-maxFailures):] }
