package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// A Sharer is a process that uses a chip, with its share of it.
type Sharer struct {
	PID int `json:"pid"`
	// AllocatedBytes are what its buffers take of all banks, by the names of the
	// regions in which it has any.
	AllocatedBytes map[string]uint64 `json:"allocated_bytes"`
	// CBMaxBytesPerCore is what its circular buffers take of the core where they
	// take most.
	CBMaxBytesPerCore uint64 `json:"cb_max_bytes_per_core"`
}

// Bytes is what its buffers take in all regions.
func (s *Sharer) Bytes() uint64 {
	var sum uint64
	for _, n := range s.AllocatedBytes {
		sum += n
	}
	return sum
}

// OtherUsers is what the processes of other users have of a chip.
type OtherUsers struct {
	Processes int `json:"processes"`
	// AllocatedBytes is what their buffers take of all banks in all regions.
	AllocatedBytes uint64 `json:"allocated_bytes"`
}

// using are the chips that the process has open, or has anything on.
func (p *process) using() map[int]bool {
	using := make(map[int]bool)
	for _, a := range p.allocators {
		for _, c := range a.set.chips {
			using[c.chip.id] = true
		}
	}
	for id, c := range p.chips {
		holds := func(t tally) bool { return t.Count > 0 }
		if len(c.programs) > 0 || slices.ContainsFunc(c.used.regions[:], holds) {
			using[id] = true
		}
	}
	return using
}

// share is the share that the process has, of whose chip this is the view.
func (d *Device) share(pid int) Sharer {
	s := Sharer{
		PID: pid, AllocatedBytes: make(map[string]uint64),
		CBMaxBytesPerCore: d.Regions.CB.MaxBytesPerCore,
	}
	for region := range event.Region(event.BankedRegions) {
		if b := d.Regions.Banked(region); b.Buffers > 0 {
			s.AllocatedBytes[region.String()] = b.AllocatedBytes
		}
	}
	return s
}

// ForUser is what a user may see who may not see what other users run: his own
// processes and failures, of which alone ExitedProcesses and FailureCount are the
// numbers then, and the chips with the totals of all. What other users' processes
// have of a chip is one sum. What the tracer lost and what did not fit is still
// that of all.
func (s *Snapshot) ForUser(uid int) *Snapshot {
	mine := *s
	mine.Processes, mine.Failures = []Process{}, []Failure{}
	mine.Devices = slices.Clone(s.Devices)
	mine.ExitedProcesses = 0
	running := make(map[int]bool)
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.UID != uid {
			continue
		}
		mine.Processes = append(mine.Processes, *p)
		if p.Exit == nil {
			running[p.PID] = true
		} else {
			mine.ExitedProcesses++
		}
	}
	for i := range s.Failures {
		if s.Failures[i].UID == uid {
			mine.Failures = append(mine.Failures, s.Failures[i])
		}
	}
	mine.FailureCount = uint64(len(mine.Failures))
	for i := range mine.Devices {
		mine.Devices[i].forProcesses(running)
	}
	return &mine
}

// forProcesses replaces the sharers that are not among the processes.
func (d *Device) forProcesses(pids map[int]bool) {
	all := d.Sharers
	d.Sharers = nil
	var others OtherUsers
	if d.OtherUsers != nil {
		others = *d.OtherUsers
	}
	for i := range all {
		if pids[all[i].PID] {
			d.Sharers = append(d.Sharers, all[i])
			continue
		}
		others.Processes++
		others.AllocatedBytes += all[i].Bytes()
	}
	if others.Processes > 0 {
		d.OtherUsers = &others
	}
}
