package aggregate

import (
	"maps"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// A Snapshot is a State at one time. It does not change afterwards and must not be modified.
// As JSON it is the document of `ttmem --json`.
type Snapshot struct {
	// V is the version of the document.
	V int `json:"v"`
	// TimeNs is the time of the latest event or of the end of tracing. BeganNs is when
	// tracing began, 0 if that is not known. Both are CLOCK_MONOTONIC.
	TimeNs  uint64 `json:"time_ns"`
	BeganNs uint64 `json:"began_ns,omitempty"`
	// Devices are the chips, in order of their ids.
	Devices []Device `json:"devices"`
	// Processes are the running ones in order of their ids, and then the latest ones
	// that ended, in order of their ends.
	Processes []Process `json:"processes"`
	// ExitedProcesses is how many have ended in all.
	ExitedProcesses uint64 `json:"exited_processes"`
	// Lost is how many events were lost, by cause. If there are any, totals may be wrong.
	Lost      map[string]uint64 `json:"lost"`
	Anomalies Anomalies         `json:"anomalies"`
	// FailureCount is how many allocations failed, and Failures are the latest 1000 of
	// them, oldest first.
	FailureCount uint64    `json:"failure_count"`
	Failures     []Failure `json:"failures"`
	// Stacks counts the call stacks that the tracer took; nil if it took none. The tracer
	// sets it, not State.
	Stacks *Stacks `json:"stacks,omitempty"`
	// Reading is true while the tracer still reads what late attached processes had
	// allocated before: totals are too low until then. The tracer sets it, not State.
	Reading bool `json:"reading,omitempty"`
}

// Stacks counts call stacks.
type Stacks struct {
	// Taken is their number. Incomplete is how many of them do not reach the start of the
	// thread, by cause.
	Taken      uint64            `json:"taken"`
	Incomplete map[string]uint64 `json:"incomplete"`
	// Python is how many are of threads that ran Python. IncompletePython is how many of
	// those do not reach the outermost Python frame, by cause.
	Python           uint64            `json:"python"`
	IncompletePython map[string]uint64 `json:"incomplete_python"`
}

// LostEvents returns the number of lost events of all causes.
func (s *Snapshot) LostEvents() uint64 {
	var n uint64
	for _, count := range s.Lost {
		n += count
	}
	return n
}

// A Device is a chip with what all processes, or one of them, use of it.
type Device struct {
	ID      int     `json:"id"`
	Board   string  `json:"board,omitempty"`
	Arch    string  `json:"arch,omitempty"`
	Regions Regions `json:"regions"`
	// L1PerCore is the use of each core's L1 by buffers and circular buffers.
	L1PerCore L1PerCore `json:"l1_per_core"`
	// Processes are the processes that use the chip now, in order of their ids. Only the
	// Snapshot's Devices have them, not a Process's.
	Processes []DeviceProcess `json:"sharers,omitempty"`
	// OtherUsers replaces the Processes of other users in a Snapshot for one user; nil
	// if there are none.
	OtherUsers *OtherUsers `json:"other_users,omitempty"`
}

// Regions are the regions of a chip.
type Regions struct {
	DRAM         Region     `json:"DRAM"`
	L1           Region     `json:"L1"`
	L1Small      Region     `json:"L1_SMALL"`
	Trace        Region     `json:"TRACE"`
	SystemMemory Region     `json:"SYSTEM_MEMORY"`
	CB           StaticUse  `json:"CB"`
	Kernel       KernelsUse `json:"KERNEL"`
}

// Banked returns a region that has banks; nil for CB and Kernel.
func (r *Regions) Banked(region event.Region) *Region {
	switch region {
	case event.DRAM:
		return &r.DRAM
	case event.L1:
		return &r.L1
	case event.L1Small:
		return &r.L1Small
	case event.Trace:
		return &r.Trace
	case event.SystemMemory:
		return &r.SystemMemory
	}
	return nil
}

// A Region is a region with banks.
type Region struct {
	Buffers uint64 `json:"buffers"`
	// SizeBytes is the sum of the buffers' sizes, not rounded to pages and banks.
	SizeBytes uint64 `json:"size_bytes"`
	// BytesPerBank is the sum of what the buffers occupy of each bank, which tt-metal
	// calls total_bytes_allocated_per_bank. A sharded buffer occupies all banks alike,
	// also those of cores without a shard. Buffers that the hybrid allocator places on
	// single cores, which tt-metal leaves out there, occupy the banks of these cores: the
	// sum is that of the fullest bank.
	BytesPerBank uint64 `json:"bytes_per_bank"`
	// Banks is the number of banks, each of CapacityBytesPerBank; 0 if it is not known.
	Banks uint32 `json:"banks"`
	// AllocatedBytes is the sum of what the buffers occupy of all their banks.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// CapacityBytes is the capacity of all banks, 0 if it is not known. It stays when no
	// process has the chip open any more.
	CapacityBytes        uint64 `json:"capacity_bytes"`
	CapacityBytesPerBank uint64 `json:"capacity_bytes_per_bank"`
	// FreeSpace is what is free in each bank; nil if the addresses of the region are not
	// known. Only the Snapshot's Devices have it, not a Process's.
	*addresses.FreeSpace
	// PeakBytes is the highest AllocatedBytes, at PeakTimeNs. PeakCapacityBytes is the
	// capacity at that time.
	PeakBytes         uint64 `json:"peak_bytes"`
	PeakTimeNs        uint64 `json:"peak_time_ns"`
	PeakCapacityBytes uint64 `json:"peak_capacity_bytes"`
}

// A StaticUse is what circular and dataflow buffers occupy of a chip's L1. Those inside an
// L1 buffer only count in GlobalCount.
type StaticUse struct {
	Programs    uint64 `json:"programs"`
	Count       uint64 `json:"count"`
	GlobalCount uint64 `json:"global_count"`
	// MaxBytesPerCore is the use of the core where it is highest: the union over the live
	// programs, because they use the same space one after the other.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// Bytes is the sum over the cores of what is in use on each.
	Bytes uint64 `json:"bytes"`
	// SumBytes is the plain sum over all programs.
	SumBytes uint64 `json:"sum_bytes"`
	// PeakBytesPerCore is the highest MaxBytesPerCore, at PeakTimeNs.
	PeakBytesPerCore uint64 `json:"peak_bytes_per_core"`
	PeakTimeNs       uint64 `json:"peak_time_ns"`
}

// A KernelsUse is what the kernels of programs occupy on a chip.
type KernelsUse struct {
	Programs uint64 `json:"programs"`
	// MaxBytesPerCore is the largest text of a program on each core. Programs use the same
	// ring in L1, which is outside the banks.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// SumBytes is the plain sum of the text per core over all programs.
	SumBytes         uint64 `json:"sum_bytes"`
	PeakBytesPerCore uint64 `json:"peak_bytes_per_core"`
	// DRAMBytes is the sum of the binaries in DRAM. They are in DRAM buffers, which count
	// in that region too.
	DRAMBytes     uint64 `json:"dram_bytes"`
	PeakDRAMBytes uint64 `json:"peak_dram_bytes"`
}

// L1PerCore is how the L1 of each core is shared: buffers grow from the top
// down, circular and dataflow buffers from the base up. All in bytes, of the core where
// they are most.
type L1PerCore struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	BufferBytes   uint64 `json:"buffer_bytes"`
	CBBytes       uint64 `json:"cb_bytes"`
	FreeBytes     uint64 `json:"free_bytes"`
	// Peak is the highest sum of buffers and circular buffers.
	Peak L1Peak `json:"peak"`
}

// An L1Peak is the highest sum of what buffers and circular buffers occupied of each core's
// L1, in bytes.
type L1Peak struct {
	TimeNs      uint64 `json:"time_ns"`
	BufferBytes uint64 `json:"buffer_bytes"`
	CBBytes     uint64 `json:"cb_bytes"`
}

// A Process is one whose memory is traced.
type Process struct {
	PID int `json:"pid"`
	// Comm is the name of the first thread that was seen.
	Comm string `json:"comm,omitempty"`
	About
	// BeforeAttachBuffers is how many buffers it had when ttmem attached, which were read
	// from its memory.
	BeforeAttachBuffers uint64 `json:"before_attach_buffers,omitempty"`
	// SinceNs is the time of its first event.
	SinceNs uint64 `json:"since_ns"`
	// Devices are the chips that it has used, with what it uses of each.
	Devices []Device `json:"devices"`
	// Exit is nil while the process runs.
	Exit *Exit `json:"exit,omitempty"`
	// Live is what the process has live, by region.
	Live []RegionTotal `json:"held,omitempty"`
	// Unfreed is what the process did not free itself: what was live when it closed a device
	// or ended.
	Unfreed []RegionTotal `json:"left,omitempty"`
}

// About describes a process. It comes from its start event.
type About struct {
	Command string `json:"command,omitempty"`
	// Library is the path of the traced library and Release its release.
	Library string `json:"library,omitempty"`
	Release string `json:"release,omitempty"`
	// UID is the user that it runs as; 0 if it is not known.
	UID int `json:"uid"`
	// Container, Pod and ContainerPID are as in event.Event.
	Container    string `json:"container,omitempty"`
	Pod          string `json:"pod,omitempty"`
	ContainerPID int    `json:"container_pid,omitempty"`
	// AttachedLate marks a process that had opened a device before ttmem attached.
	AttachedLate bool `json:"attached_late,omitempty"`
}

// An Exit is the end of a process.
type Exit struct {
	TimeNs uint64 `json:"time_ns"`
	// Status is as in wait(2); nil if it is not known.
	Status *int `json:"status,omitempty"`
}

// A RegionTotal is the buffers of one region that a process has live, or had when it closed a device
// or ended. A buffer on several chips counts once.
type RegionTotal struct {
	Region string `json:"region"`
	// Reason is "device_close" or "process_exit"; empty for live buffers.
	Reason  string `json:"reason,omitempty"`
	Buffers uint64 `json:"buffers"`
	// SizeBytes and AllocatedBytes are over all chips.
	SizeBytes      uint64 `json:"size_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Holders are the call stacks that allocated it, and add up to it: the 16 with the
	// most, largest first, then the sum of other and unknown stacks. There are none if no
	// stack is known. Live buffers only have them after State.WithHolders.
	Holders []Holder `json:"holders,omitempty"`
}

// Snapshot returns the state as it is now. Its cost is that of the chips, programs and
// processes, and of a pass over the addresses of all buffers. Ordering a million of these
// takes the first call 0.2 s; later calls take 5 ms.
func (s *State) Snapshot() *Snapshot {
	snap := &Snapshot{
		V: 1, TimeNs: s.now, BeganNs: s.began, Devices: []Device{}, Processes: []Process{},
		ExitedProcesses: s.exitedCount,
		Lost:            maps.Clone(s.lost), Anomalies: s.anomalies,
		FailureCount: s.failures.count, Failures: s.failures.newest(),
	}
	if snap.Failures == nil {
		snap.Failures = []Failure{}
	}
	texts, processes := make(map[int]uint64), make(map[int][]DeviceProcess)
	for _, p := range s.byPID() {
		view := p.view()
		used := p.usedChips()
		for i := range view.Devices {
			d := &view.Devices[i]
			texts[d.ID] = max(texts[d.ID], d.Regions.Kernel.MaxBytesPerCore)
			if used[d.ID] {
				processes[d.ID] = append(processes[d.ID], deviceProcess(p.pid, d))
			}
		}
		snap.Processes = append(snap.Processes, view)
	}
	snap.Processes = append(snap.Processes, s.exited...)
	free := s.freeSpaces()
	for _, id := range sortedKeys(s.chips) {
		c := s.chips[id]
		d := c.used.view(c, &c.capacities, texts[id], c.peaks())
		for region := range event.Region(event.BankedRegions) {
			d.Regions.Banked(region).FreeSpace = free.of(id, region, c.capacities[region])
		}
		d.Processes = processes[id]
		snap.Devices = append(snap.Devices, d)
	}
	return snap
}

func (p *process) view() Process {
	view := Process{
		PID: p.pid, Comm: p.name.comm, About: p.name.about, BeforeAttachBuffers: p.beforeAttach,
		SinceNs: p.since, Devices: []Device{},
	}
	for _, id := range sortedKeys(p.chips) {
		c := p.chips[id]
		view.Devices = append(view.Devices, c.used.view(c.chip, c.capacities(), c.textMax(), c.peaks))
	}
	view.Live = p.liveView(nil)
	view.Unfreed = p.unfreedView()
	return view
}

func (u *usage) view(c *chip, capacities *capacities, textMax uint64, peaks peaks) Device {
	d := Device{ID: c.id, Board: c.board, Arch: c.arch}
	l1Peak := peaks[event.L1]
	peaks[event.L1] = u.l1Buffers // of all banks, as that of other regions
	for r := range u.regions {
		*d.Regions.Banked(event.Region(r)) = u.regions[r].region(capacities[r], &peaks[r])
	}
	d.Regions.L1.BytesPerBank += u.load.Max()
	d.Regions.CB = StaticUse{
		Programs: u.static.programs, Count: u.static.count, GlobalCount: u.static.global,
		MaxBytesPerCore: u.static.cores.Max(), Bytes: u.static.cores.Bytes(), SumBytes: u.static.sum,
		PeakBytesPerCore: u.static.peak, PeakTimeNs: u.static.peakTime,
	}
	d.Regions.Kernel = KernelsUse{
		Programs: u.kernels.programs, MaxBytesPerCore: textMax, SumBytes: u.kernels.textSum,
		PeakBytesPerCore: u.kernels.textPeak,
		DRAMBytes:        u.kernels.dram, PeakDRAMBytes: u.kernels.dramPeak,
	}
	l1 := &d.L1PerCore
	l1.CapacityBytes = d.Regions.L1.CapacityBytesPerBank
	top := u.top()
	l1.BufferBytes, l1.CBBytes = u.regions[event.L1].perBank+top.Bytes-top.Static, top.Static
	if used := l1.BufferBytes + l1.CBBytes; used < l1.CapacityBytes {
		l1.FreeBytes = l1.CapacityBytes - used
	}
	l1.Peak = L1Peak{TimeNs: l1Peak.time, BufferBytes: l1Peak.bytes - l1Peak.static, CBBytes: l1Peak.static}
	return d
}

// region is the view of a region in which the buffers are.
func (t *tally) region(capacity event.Capacity, most *peak) Region {
	view := Region{
		Buffers: t.Count, SizeBytes: t.size, BytesPerBank: t.perBank,
		Banks: capacity.Banks, AllocatedBytes: t.Bytes,
		CapacityBytes: total(capacity), CapacityBytesPerBank: capacity.BytesPerBank,
		PeakBytes: most.bytes, PeakTimeNs: most.time, PeakCapacityBytes: most.capacity,
	}
	if view.PeakCapacityBytes == 0 {
		// The device was seen after its first buffers.
		view.PeakCapacityBytes = view.CapacityBytes
	}
	return view
}
