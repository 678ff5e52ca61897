package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// maxFailures is the number of failures that a State keeps.
const maxFailures = 1000

// A Failure is an allocation that failed with an exception of the library.
type Failure struct {
	TimeNs  uint64 `json:"time_ns"`
	PID     int    `json:"pid"`
	TID     int    `json:"tid,omitempty"`
	Comm    string `json:"comm,omitempty"`
	Devices []int  `json:"devices"`
	Region  string `json:"region"`
	Reason  string `json:"reason,omitempty"`
	// SizeBytes is the requested size on each chip, and BytesPerBank that of each of Banks
	// banks.
	SizeBytes    uint64 `json:"size_bytes,omitempty"`
	BytesPerBank uint64 `json:"bytes_per_bank,omitempty"`
	Banks        uint32 `json:"banks,omitempty"`
	ProgramID    uint64 `json:"program_id,omitempty"`
	// Message is that of the exception.
	Message string `json:"message,omitempty"`
	// UID is the user of the process; 0 if that is not known.
	UID   int          `json:"uid"`
	Stack *event.Stack `json:"stack,omitempty"`
	// Evidence is the state of the banks; nil if that is not known. `ttmem oom` prints it.
	Evidence *Evidence `json:"-"`
	// number is the event's number: see Point.
	number uint64
}

// failures is a list that only grows at its end, so that snapshots can share it.
type failures struct {
	count uint64
	list  []Failure
}

// fail adds a failed allocation. It does not create a process.
func (s *State) fail(e *event.Event) {
	uid := 0
	var found *Evidence
	if p := s.known(e.PID); p != nil {
		found = p.evidence(e)
		if p.name.comm == "" {
			p.name.comm = e.Comm
		}
		uid = p.name.about.UID
	}
	s.failures.add(e, uid, found, s.applied)
}

func (f *failures) add(e *event.Event, uid int, found *Evidence, number uint64) {
	f.count++
	if len(f.list) == 2*maxFailures {
		f.list = slices.Clone(newest(f.list))
	}
	f.list = append(f.list, Failure{
		TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm,
		Devices: append([]int{}, e.Devices...),
		Region:  e.Region.String(), Reason: e.Reason.String(),
		SizeBytes: e.SizeBytes, BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, Message: e.Message, UID: uid, Stack: e.Stack, Evidence: found, number: number,
	})
}

// resolveStacks resolves the call stacks that are kept of a process that ended. An
// unresolved stack refers to all that is known of the process's code.
func (s *State) resolveStacks(pid int) {
	for i := range s.failures.list {
		if f := &s.failures.list[i]; f.PID == pid {
			f.Stack.Calls()
			f.Evidence.resolveStacks()
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
func (f *failures) newest() []Failure { return slices.Clip(newest(f.list)) }

func newest[T any](list []T) []T { return list[max(0, len(list)-maxFailures):] }

// resolveStacks resolves the call stacks.
func (found *Evidence) resolveStacks() {
	if found == nil {
		return
	}
	for _, list := range [][]Blame{found.Holders, found.Blockers} {
		for i := range list {
			list[i].Stack.Calls()
		}
	}
	for i := range found.Statics {
		found.Statics[i].Stack.Calls()
	}
}
