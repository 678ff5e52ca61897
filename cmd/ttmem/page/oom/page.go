// Package oom explains allocations that failed.
package oom

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
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
	users     page.Users
}

// Choose chooses the failures of the selected processes.
func (p *Page) Choose() {
	p.users = page.UsersOf(p.Snapshot)
	p.forgotten = p.Snapshot.FailureCount - uint64(len(p.Snapshot.Failures))
	for i := range p.Snapshot.Failures {
		f := &p.Snapshot.Failures[i]
		if len(p.PIDs) == 0 || slices.Contains(p.PIDs, f.PID) {
			p.Failures = append(p.Failures, f)
		}
	}
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
