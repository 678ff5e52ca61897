package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// ForProcess is what a snapshot tells of the processes that had the id, one after the
// other: of each chip what they had of it, and their failures, from when the first of them
// began to the end of the last, if it has ended. Nil: there was none. What the tracer lost
// and what did not fit is still that of all.
func (s *Snapshot) ForProcess(pid int) *Snapshot {
	one := *s
	one.Devices, one.Processes, one.Failures = []Device{}, []Process{}, []Failure{}
	one.BeganNs, one.ExitedProcesses, one.Stacks = 0, 0, nil
	var ended uint64
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.PID != pid {
			continue
		}
		one.Processes = append(one.Processes, *p)
		if p.Exit != nil {
			one.ExitedProcesses++
			ended = max(ended, p.Exit.TimeNs)
		}
		for j := range p.Devices {
			d := &p.Devices[j]
			same := slices.IndexFunc(one.Devices, func(other Device) bool { return other.ID == d.ID })
			if same < 0 {
				one.Devices = append(one.Devices, *d)
				continue
			}
			one.Devices[same].keepPeaks(d)
		}
	}
	if len(one.Processes) == 0 {
		return nil
	}
	if int(one.ExitedProcesses) == len(one.Processes) {
		one.TimeNs = ended
	}
	slices.SortFunc(one.Devices, func(a, b Device) int { return a.ID - b.ID })
	for i := range s.Failures {
		if s.Failures[i].PID == pid {
			one.Failures = append(one.Failures, s.Failures[i])
		}
	}
	one.FailureCount = uint64(len(one.Failures))
	return &one
}

// keepPeaks keeps of each peak the higher: the device's own, or that of the same chip as
// another process had it, which has ended.
func (d *Device) keepPeaks(other *Device) {
	for i := range event.BankedRegions {
		a, b := d.Regions.Banked(event.Region(i)), other.Regions.Banked(event.Region(i))
		if b.PeakBytes > a.PeakBytes {
			a.PeakBytes, a.PeakTimeNs, a.PeakCapacityBytes = b.PeakBytes, b.PeakTimeNs, b.PeakCapacityBytes
		}
	}
	if a, b := &d.Regions.CB, &other.Regions.CB; b.PeakBytesPerCore > a.PeakBytesPerCore {
		a.PeakBytesPerCore, a.PeakTimeNs = b.PeakBytesPerCore, b.PeakTimeNs
	}
	a, b := &d.Regions.Kernel, &other.Regions.Kernel
	a.PeakBytesPerCore, a.PeakDRAMBytes = max(a.PeakBytesPerCore, b.PeakBytesPerCore), max(a.PeakDRAMBytes, b.PeakDRAMBytes)
	if a, b := &d.L1PerCore.Peak, &other.L1PerCore.Peak; b.BufferBytes+b.CBBytes > a.BufferBytes+a.CBBytes {
		*a = *b
	}
}
