package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
)

// ForUser reduces a snapshot to the data that a user may see: the user's own processes and
// failures, and the chips with the totals of all processes. ExitedProcesses and FailureCount count
// only the user's own. The processes of other users on a chip become one sum. Anomalies are still
// those of all processes.
func ForUser(s *memory.Snapshot, uid int) *memory.Snapshot {
	own := only(s, func(_, of int) bool { return of == uid })
	own.Devices = slices.Clone(s.Devices)
	running := make(map[int]bool)
	for i := range own.Processes {
		if p := &own.Processes[i]; p.Exit == nil {
			running[p.PID] = true
		}
	}
	for i := range own.Devices {
		hideOthers(&own.Devices[i], running)
	}
	return own
}

// only returns a snapshot with only the selected processes and their failures.
func only(s *memory.Snapshot, selected func(pid, uid int) bool) *memory.Snapshot {
	some := *s
	some.Processes = []memory.Process{}
	some.ExitedProcesses, some.LostEvents = 0, memory.Sum(s.Lost)
	for _, p := range s.Processes {
		if selected(p.PID, p.UID) {
			some.Processes = append(some.Processes, p)
			some.LostEvents += p.Count()
			if p.Exit != nil {
				some.ExitedProcesses++
			}
		}
	}
	some.Overlaps = nil
	for _, o := range s.Overlaps {
		if o, seen := o.For(selected); seen {
			some.Overlaps = append(some.Overlaps, o)
		}
	}
	some.OverlapCount = uint64(len(some.Overlaps))
	some.Unsafe, some.UnsafeCount = nil, 0
	for _, u := range s.Unsafe {
		if selected(u.PID, u.UID) {
			some.Unsafe = append(some.Unsafe, u)
			some.UnsafeCount += u.Count
		}
	}
	some.AfterFree = slices.DeleteFunc(slices.Clone(s.AfterFree), func(a memory.AfterFree) bool { return !selected(a.PID, a.UID) })
	ofOthers := func(f memory.Failure) bool { return !selected(f.PID, f.UID) }
	some.Failures = slices.DeleteFunc(append([]memory.Failure{}, s.Failures...), ofOthers)
	some.OperationFailures = slices.DeleteFunc(slices.Clone(s.OperationFailures), ofOthers)
	some.FailureCount, some.OperationFailureCount = uint64(len(some.Failures)), uint64(len(some.OperationFailures))
	return &some
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
