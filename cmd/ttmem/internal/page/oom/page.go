// Package oom explains allocations that failed.
package oom

import (
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// Page is what a page of failures shows.
type Page struct {
	// Of is the origin of the failures: "in model.ttmem".
	Of string
	// File is the recording, if it can be read again.
	File string
	// Live is true if the processes continue.
	Live bool
	// Limit is the maximum number of failures to show; 0: all.
	Limit int
	// PIDs are the selected processes; all if there are none.
	PIDs []int
	// Others describes the memory of other users; "" if all of it is shown.
	Others string
	Notes  []string
	// Clock relates times to the wall clock. With UTC, times are printed by the wall clock.
	Clock    page.Clock
	UTC      bool
	Snapshot *memory.Snapshot
	// Failures are the selected ones, oldest first, and forgotten is the number of older failures
	// without any details.
	Failures  []*memory.Failure
	forgotten uint64
	// Operations are the selected operations that failed for another reason, oldest first.
	Operations []*memory.Failure
	users      page.Users
	// Holders returns the buffers that were live at a failure and whose owners are known; nil: none.
	Holders func(*memory.Failure) []memory.Buffer
	// Large is true if the recording is too large to search the smallest sizes and board without being asked.
	Large bool
	// WhatIf are the changes that the user asks about; nil for none.
	WhatIf *WhatIf
	// proofs are those of the failures with advice, recorded is what was allocated at most, and whole is whether all that
	// worked still does with WhatIf, after Prove.
	proofs   map[*memory.Failure]*proofs
	recorded [event.BankedRegions]uint64
	whole    replay.Verdict
	// predicted are the failures that the replay predicted, and remedies the smallest changes that were found for them.
	predicted map[*memory.Failure]bool
	remedies  map[*memory.Failure]*remedy
	// smallest is what a run without failures needs.
	smallest []smallest
}

// Choose chooses the failures of the selected processes.
func (p *Page) Choose() {
	p.users = page.UsersOf(p.Snapshot)
	p.forgotten = p.Snapshot.FailureCount - uint64(len(p.Snapshot.Failures))
	p.Failures, p.Operations = p.selected(p.Snapshot.Failures), p.selected(p.Snapshot.OperationFailures)
}

// selected returns the failures of the selected processes.
func (p *Page) selected(all []memory.Failure) (list []*memory.Failure) {
	for i := range all {
		if f := &all[i]; len(p.PIDs) == 0 || slices.Contains(p.PIDs, f.PID) {
			list = append(list, f)
		}
	}
	return list
}

// Explained returns up to n failures, newest first, whose buffers are shown in the text.
func (p *Page) Explained(n int) (list []*memory.Failure) {
	shown, _ := page.Newest(p.groups(), p.Limit)
	for _, group := range slices.Backward(shown) {
		if group[0].Evidence != nil && len(list) < n {
			list = append(list, group[0])
		}
	}
	return list
}

// holders groups the buffers of a call stack at a failure by owner, the most bytes first. The last
// group is the buffers whose owner is not known. It returns nil if no owner is known.
func (p *Page) holders(f *memory.Failure, of *memory.Blame) []analyze.Holder {
	if p.Holders == nil {
		return nil
	}
	var held []*memory.Buffer
	owned := p.Holders(f)
	for i := range owned {
		b := &owned[i]
		if b.PID == f.PID && b.Region == f.Evidence.Region && b.SinceNs <= f.TimeNs && memory.StackID(b.Stack) == memory.StackID(of.Stack) &&
			b.Address >= of.Address && b.Address < of.End {
			held = append(held, b)
		}
	}
	return analyze.ByHolder(held, memory.Amount{Count: of.Count, Bytes: of.BytesPerBank}, true)
}

// process is the name of the process of a failure; "" if it is not known.
func (p *Page) process(f *memory.Failure) string {
	name := page.Clean(f.Comm)
	for i := range p.Snapshot.Processes {
		if one := &p.Snapshot.Processes[i]; one.PID == f.PID && one.SinceNs <= f.TimeNs {
			name = page.ProcessName(one)
		}
	}
	return name
}
