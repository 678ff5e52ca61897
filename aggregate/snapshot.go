package aggregate

import (
	"maps"
	"slices"

	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Snapshot returns the present state. Its cost is that of Totals and of a pass over the addresses of all
// buffers. With a million buffers the first call takes 0.3 s to order these; later calls take 5 ms.
func (s *State) Snapshot() *memory.Snapshot {
	snap, free := s.Totals(), s.freeSpaces()
	for i := range snap.Devices {
		d := &snap.Devices[i]
		for region, space := range free[d.ID] {
			d.Regions.Banked(event.Region(region)).FreeSpace = space
		}
	}
	return snap
}

// Totals returns the present state as Snapshot does, but without the free space of regions. Its cost depends on
// the number of chips, programs and processes.
func (s *State) Totals() *memory.Snapshot {
	s.settle()
	snap := &memory.Snapshot{
		V: 1, TimeNs: s.now, BeganNs: s.began, Devices: []memory.Device{}, Processes: []memory.Process{},
		ExitedProcesses: s.exited.count,
		Lost:            maps.Clone(s.lost), LostEvents: s.lostEvents, Anomalies: s.anomalies,
		FailureCount: s.failures.Count, Failures: s.failures.List(),
		OverlapCount: s.overlaps.Count, Overlaps: s.overlaps.List(),
		UnsafeCount: s.unsafeCount, Unsafe: slices.Clone(s.unsafe), AfterFree: slices.Clone(s.afterFree),
		OperationFailureCount: s.operationFailures.Count, OperationFailures: s.operationFailures.List(),
	}
	programs, processes := make(map[int]peak.Programs), make(map[int][]memory.DeviceProcess)
	for _, p := range s.byPID() {
		view := p.view()
		for i := range view.Devices {
			d := &view.Devices[i]
			programs[d.ID] = programs[d.ID].With(peak.Programs{
				TextMax: p.chips[d.ID].textMax(), Silent: p.isSilent(p.chips[d.ID]), MostPerCore: d.Regions.CB.MaxBytesPerCore, MostBytes: d.Regions.CB.Bytes,
			})
			if p.uses(p.chips[d.ID]) {
				processes[d.ID] = append(processes[d.ID], d.ShareOf(p.pid))
			}
		}
		snap.Processes = append(snap.Processes, view)
	}
	for _, one := range s.exited.list {
		snap.Processes = append(snap.Processes, one.Process)
	}
	for _, c := range s.byID() {
		all := programs[c.id]
		all.Running = s.running(c, &c.used)
		d := c.view(&c.used, &c.capacities, all, c.pools.Highest())
		for region := range event.Region(event.BankedRegions) {
			d.Regions.Banked(region).OverlapBytesPerBank = c.covers.regions[region].Twice
		}
		d.Processes, d.Failures = processes[c.id], c.failures
		snap.Devices = append(snap.Devices, d)
	}
	return snap
}

// Counts returns how many processes run, how many have ended and how many events were lost, as
// a Snapshot has them.
func (s *State) Counts() (running int, exited, lost uint64) {
	return len(s.processes), s.exited.count, s.lostEvents
}

func (p *process) view() memory.Process {
	view := memory.Process{
		PID: p.pid, Comm: p.name.comm, About: p.name.about, BeforeAttachBuffers: p.beforeAttach,
		SinceNs: p.since, Losses: p.losses.Clone(), Devices: []memory.Device{},
		OwnerSearch: p.owners.search(uint64(p.buffers.Len())), Host: p.host.Memory(p.state.now),
	}
	for _, c := range sortedValues(p.chips) {
		programs := peak.Programs{TextMax: c.textMax(), Silent: p.isSilent(c)}
		programs.MostPerCore, programs.MostBytes = c.largest()
		if c.chip.run != nil && c.chip.run.by == c {
			programs.Running = p.state.running(c.chip, &c.used)
		}
		view.Devices = append(view.Devices, c.chip.view(&c.used, c.capacities(), programs, c.peaks))
	}
	view.Live = p.totalsOf(event.NoReason)
	view.Unfreed = append(p.totalsOf(event.ReasonDeviceClose), p.totalsOf(event.ReasonProcessExit)...)
	return view
}

func (p *process) totalsOf(reason event.Reason) (list []memory.RegionTotal) {
	for region, t := range p.totals[reason] {
		if t.Count > 0 {
			list = append(list, memory.RegionTotal{
				Region: event.Region(region).String(), Reason: reason.String(),
				Buffers: t.Count, SizeBytes: t.Size, AllocatedBytes: t.Bytes,
			})
		}
	}
	return list
}

// view returns the use of the chip by all processes, or by one.
func (c *chip) view(u *peak.Use, capacities *memory.Capacities, programs peak.Programs, peaks peak.Peaks) memory.Device {
	d := u.View(capacities, programs, peaks)
	d.L1PerCore.Peak.AtLeast = c.pools[event.L1].AtLeast
	d.ID, d.Board, d.Arch = c.id, c.board, c.arch
	return d
}

// uses reports whether the process has the chip open, or has buffers or programs on it.
func (p *process) uses(c *processChip) bool {
	for _, a := range p.allocators {
		if slices.Contains(a.set.chips, c) {
			return true
		}
	}
	return len(c.programs) > 0 || c.used.HasBuffers()
}
