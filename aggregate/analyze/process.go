package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// ForProcess reduces a snapshot to the processes that had the id, one after the other: to their
// failures, their use of each chip, and the time from the start of the first to the end of the
// last, if that ended. Anomalies remain those of all processes. It returns nil if no process had
// the id.
func ForProcess(s *memory.Snapshot, pid int) *memory.Snapshot {
	one := only(s, func(of, _ int) bool { return of == pid })
	one.Devices, one.BeganNs, one.Stacks = []memory.Device{}, 0, nil
	var ended uint64
	for i := range one.Processes {
		p := &one.Processes[i]
		if p.Exit != nil {
			ended = max(ended, p.Exit.TimeNs)
		}
		for j := range p.Devices {
			d := &p.Devices[j]
			same := slices.IndexFunc(one.Devices, func(other memory.Device) bool { return other.ID == d.ID })
			if same < 0 {
				one.Devices = append(one.Devices, *d)
				continue
			}
			keepHigherPeaks(&one.Devices[same], d)
		}
	}
	if len(one.Processes) == 0 {
		return nil
	}
	if int(one.ExitedProcesses) == len(one.Processes) {
		one.TimeNs = ended
	}
	slices.SortFunc(one.Devices, func(a, b memory.Device) int { return a.ID - b.ID })
	return one
}

// keepHigherPeaks raises the peaks of d to those of the same chip in an earlier process.
func keepHigherPeaks(d, earlier *memory.Device) {
	for i := range event.BankedRegions {
		a, b := d.Regions.Banked(event.Region(i)), earlier.Regions.Banked(event.Region(i))
		if b.PeakBytes > a.PeakBytes {
			a.PeakBytes, a.PeakTimeNs, a.PeakCapacityBytes = b.PeakBytes, b.PeakTimeNs, b.PeakCapacityBytes
		}
	}
	if a, b := &d.L1PerCore.Peak, &earlier.L1PerCore.Peak; b.BufferBytes+b.CBBytes > a.BufferBytes+a.CBBytes {
		*a = *b
	}
}
