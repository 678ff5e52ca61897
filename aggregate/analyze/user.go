package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
)

// ForUser reduces a snapshot to what a user may see: their own processes and failures, and
// the chips with the totals of all processes. ExitedProcesses and FailureCount count the
// user's own. The other users' processes on a chip are one sum. Lost events and anomalies
// are still those of all processes.
func ForUser(s *memory.Snapshot, uid int) *memory.Snapshot {
	own := *s
	own.Processes, own.Failures = []memory.Process{}, []memory.Failure{}
	own.Devices = slices.Clone(s.Devices)
	own.ExitedProcesses = 0
	running := make(map[int]bool)
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.UID != uid {
			continue
		}
		own.Processes = append(own.Processes, *p)
		if p.Exit == nil {
			running[p.PID] = true
		} else {
			own.ExitedProcesses++
		}
	}
	for i := range s.Failures {
		if s.Failures[i].UID == uid {
			own.Failures = append(own.Failures, s.Failures[i])
		}
	}
	own.FailureCount = uint64(len(own.Failures))
	for i := range own.Devices {
		hideOthers(&own.Devices[i], running)
	}
	return &own
}

// hideOthers replaces the processes of a chip by their sum, except for the user's own.
func hideOthers(d *memory.Device, own map[int]bool) {
	all := d.Processes
	d.Processes = nil
	var others memory.OtherUsers
	if d.OtherUsers != nil {
		others = *d.OtherUsers
	}
	for i := range all {
		if own[all[i].PID] {
			d.Processes = append(d.Processes, all[i])
			continue
		}
		others.Processes++
		others.AllocatedBytes += all[i].Bytes()
	}
	if others.Processes > 0 {
		d.OtherUsers = &others
	}
}
