package main

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// oomPage is what a page of failures shows.
type oomPage struct {
	// of is where the failures are from: "in model.ttmem".
	of string
	// file is the recording, if it can be read again.
	file string
	// live is true if the processes go on.
	live bool
	// n is how many failures are shown; 0: all.
	n int
	// pids are the selected processes; all if there are none.
	pids []int
	// others is what is known of the memory of other users; "" if all of it is shown.
	others string
	notes  []string
	snap   *aggregate.Snapshot
	// failures are the selected ones, oldest first, and forgotten is the number of older
	// ones of which nothing else is known.
	failures  []*aggregate.Failure
	forgotten uint64
}

// choose chooses the failures of the selected processes.
func (p *oomPage) choose() {
	p.forgotten = p.snap.FailureCount - uint64(len(p.snap.Failures))
	for i := range p.snap.Failures {
		f := &p.snap.Failures[i]
		if len(p.pids) == 0 || slices.Contains(p.pids, f.PID) {
			p.failures = append(p.failures, f)
		}
	}
}

// process is the name of the process of a failure; "" if it is not known.
func (p *oomPage) process(f *aggregate.Failure) string {
	name := page.Clean(f.Comm)
	for i := range p.snap.Processes {
		if one := &p.snap.Processes[i]; one.PID == f.PID && one.SinceNs <= f.TimeNs {
			name = page.ProcessName(one)
		}
	}
	return name
}
