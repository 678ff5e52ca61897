package aggregate

import (
	"maps"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// A Snapshot is what a State knew at one time. It does not change afterwards,
// and must not be changed. As JSON it is the document of `ttmem --json`.
type Snapshot struct {
	// V is the version of the document.
	V int `json:"v"`
	// TimeNs is the time of the latest event or of the end of tracing, and BeganNs
	// when tracing began, 0 where that is not known. CLOCK_MONOTONIC.
	TimeNs  uint64 `json:"time_ns"`
	BeganNs uint64 `json:"began_ns,omitempty"`
	// Devices are the chips, in order of their ids.
	Devices []Device `json:"devices"`
	// Processes are those that run, in order of their ids, and then the newest
	// of those that ended, in the order in which they did.
	Processes []Process `json:"processes"`
	// ExitedProcesses is how many have ended in all.
	ExitedProcesses uint64 `json:"exited_processes"`
	// Lost is how many events were lost, by cause. Totals may be wrong where
	// there are any.
	Lost      map[string]uint64 `json:"lost"`
	Anomalies Anomalies         `json:"anomalies"`
	// FailureCount is how many requests for memory failed, and Failures are the
	// newest 1000 of them, oldest first.
	FailureCount uint64    `json:"failure_count"`
	Failures     []Failure `json:"failures"`
	// Stacks is what the tracer says of the call stacks that it took; nil where it
	// took none. A State knows nothing of it.
	Stacks *Stacks `json:"stacks,omitempty"`
	// Reading is true where what processes held before they were attached is still read
	// from their memory: totals are too low until then. A State knows nothing of it.
	Reading bool `json:"reading,omitempty"`
}

// Stacks counts call stacks.
type Stacks struct {
	// Taken is how many were taken, and Incomplete how many of them do not reach
	// the thread's start, by cause.
	Taken      uint64            `json:"taken"`
	Incomplete map[string]uint64 `json:"incomplete"`
	// Python is how many of the threads ran Python, and IncompletePython how many
	// of those stacks do not reach Python's outermost frame, by cause.
	Python           uint64            `json:"python"`
	IncompletePython map[string]uint64 `json:"incomplete_python"`
}

// LostEvents is the number of events that were lost for any cause.
func (s *Snapshot) LostEvents() uint64 {
	var n uint64
	for _, count := range s.Lost {
		n += count
	}
	return n
}

// A Device is one chip, with what all processes together use of it, or one of
// them.
type Device struct {
	ID      int     `json:"id"`
	Board   string  `json:"board,omitempty"`
	Arch    string  `json:"arch,omitempty"`
	Regions Regions `json:"regions"`
	// L1PerCore is how buffers and circular buffers share each core's L1.
	L1PerCore L1PerCore `json:"l1_per_core"`
	// Sharers are the processes that use the chip now, in order of their ids,
	// each with its share. Of the chips of the Snapshot, not of a Process.
	Sharers []Sharer `json:"sharers,omitempty"`
	// OtherUsers is what stands for the Sharers of other users in a Snapshot
	// that ForUser returned; nil where there are none.
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

// Banked is the region of that name; nil for CB and Kernel, which have no
// banks.
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

// A Region is a region that an allocator divides into banks.
type Region struct {
	Buffers uint64 `json:"buffers"`
	// SizeBytes is the sum of the buffers' sizes, without what rounding to
	// pages and banks costs.
	SizeBytes uint64 `json:"size_bytes"`
	// BytesPerBank is the sum of what the buffers take of each bank: what
	// tt-metal calls total_bytes_allocated_per_bank. It takes a shard from all
	// banks alike, also from those of cores that have none.
	BytesPerBank uint64 `json:"bytes_per_bank"`
	// Banks is the number of banks, each of CapacityBytesPerBank; 0 where it is
	// not known.
	Banks uint32 `json:"banks"`
	// AllocatedBytes is the sum over the buffers of what they take of all their
	// banks.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// CapacityBytes is what the region can hold, 0 where it is not known; of a
	// chip that nobody has open any more, what it could hold last.
	CapacityBytes        uint64 `json:"capacity_bytes"`
	CapacityBytesPerBank uint64 `json:"capacity_bytes_per_bank"`
	// FreeSpace is what is free of each bank: of a region of the Snapshot's Devices, and
	// nil where it is not known where the region lies in its banks. Not of a Process.
	*addresses.FreeSpace
	// PeakBytes is the most that AllocatedBytes has been, at PeakTimeNs, when
	// the capacity was PeakCapacityBytes.
	PeakBytes         uint64 `json:"peak_bytes"`
	PeakTimeNs        uint64 `json:"peak_time_ns"`
	PeakCapacityBytes uint64 `json:"peak_capacity_bytes"`
}

// A StaticUse is what circular and dataflow buffers take of a chip's L1. Those
// that lie in an L1 buffer are counted as GlobalCount only.
type StaticUse struct {
	Programs    uint64 `json:"programs"`
	Count       uint64 `json:"count"`
	GlobalCount uint64 `json:"global_count"`
	// MaxBytesPerCore is what is in use on the core where it is most: the union
	// over the live programs, which use the same space one after the other.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// Bytes is the sum over the cores of what is in use on each.
	Bytes uint64 `json:"bytes"`
	// SumBytes is the plain sum over all programs.
	SumBytes uint64 `json:"sum_bytes"`
	// PeakBytesPerCore is the most that MaxBytesPerCore has been, at
	// PeakTimeNs.
	PeakBytesPerCore uint64 `json:"peak_bytes_per_core"`
	PeakTimeNs       uint64 `json:"peak_time_ns"`
}

// A KernelsUse is what the kernels of programs take of a chip.
type KernelsUse struct {
	Programs uint64 `json:"programs"`
	// MaxBytesPerCore is the text of the program that has most of it, on each
	// core. Programs use the same ring in L1, which lies outside of the banks.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// SumBytes is the plain sum of the text per core over all programs.
	SumBytes         uint64 `json:"sum_bytes"`
	PeakBytesPerCore uint64 `json:"peak_bytes_per_core"`
	// DRAMBytes is the sum of the binaries in DRAM. They lie in DRAM buffers,
	// which count in that region too.
	DRAMBytes     uint64 `json:"dram_bytes"`
	PeakDRAMBytes uint64 `json:"peak_dram_bytes"`
}

// L1PerCore is how the L1 of each core is shared: buffers grow from the top
// down, circular and dataflow buffers from the base up. All in bytes.
type L1PerCore struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	BufferBytes   uint64 `json:"buffer_bytes"`
	CBBytes       uint64 `json:"cb_bytes"`
	FreeBytes     uint64 `json:"free_bytes"`
	// Peak is when buffers and circular buffers together took most.
	Peak L1Peak `json:"peak"`
}

// An L1Peak is the most that buffers and circular buffers took of each core's
// L1 together. In bytes.
type L1Peak struct {
	TimeNs      uint64 `json:"time_ns"`
	BufferBytes uint64 `json:"buffer_bytes"`
	CBBytes     uint64 `json:"cb_bytes"`
}

// A Process is one whose memory is traced.
type Process struct {
	PID int `json:"pid"`
	// Comm is the name of its first thread that was seen.
	Comm string `json:"comm,omitempty"`
	About
	// BeforeAttachBuffers is how many buffers it had when it was attached, which
	// were found in its memory.
	BeforeAttachBuffers uint64 `json:"before_attach_buffers,omitempty"`
	// SinceNs is the time of its first event.
	SinceNs uint64 `json:"since_ns"`
	// Devices are the chips that it has used, with what it uses of each.
	Devices []Device `json:"devices"`
	// Exit is nil for a process that runs.
	Exit *Exit `json:"exit,omitempty"`
	// Held is what the process has allocated now, by region.
	Held []Left `json:"held,omitempty"`
	// Left is what the process did not free itself: what it held when it closed
	// a device, or when it ended.
	Left []Left `json:"left,omitempty"`
}

// About is what the start of a process told of it.
type About struct {
	Command string `json:"command,omitempty"`
	// Library is the path of the traced library and Release its release.
	Library string `json:"library,omitempty"`
	Release string `json:"release,omitempty"`
	// UID is the user that it runs as; 0 where it is not known.
	UID int `json:"uid"`
	// Container, Pod and ContainerPID are as in event.Event.
	Container    string `json:"container,omitempty"`
	Pod          string `json:"pod,omitempty"`
	ContainerPID int    `json:"container_pid,omitempty"`
	// AttachedLate marks a process that had opened a device before it was
	// attached.
	AttachedLate bool `json:"attached_late,omitempty"`
}

// An Exit is the end of a process.
type Exit struct {
	TimeNs uint64 `json:"time_ns"`
	// Status is as in wait(2); nil where it is not known.
	Status *int `json:"status,omitempty"`
}

// Left is the buffers of one region that a process has allocated still, or had
// when something ended. A buffer on several chips is one.
type Left struct {
	Region string `json:"region"`
	// Reason is "device_close" or "process_exit", and empty for what is held
	// now.
	Reason  string `json:"reason,omitempty"`
	Buffers uint64 `json:"buffers"`
	// SizeBytes and AllocatedBytes are over all chips.
	SizeBytes      uint64 `json:"size_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Holders are where it was allocated, and add up to it: the 16 call stacks of
	// the process that hold most, largest first, then what is from other stacks or
	// from none that is known. There are none where no stack is known, and of what is
	// held now only after State.WithHolders.
	Holders []Holder `json:"holders,omitempty"`
}

// Snapshot returns what the state knows now. Its cost is that of the chips, programs and
// processes, and of a pass over the addresses of all buffers, which the first puts in
// order: for a million buffers 0.2 s, and then 5 ms.
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
	texts, sharers := make(map[int]uint64), make(map[int][]Sharer)
	for _, p := range s.byPID() {
		view := p.view()
		using := p.using()
		for i := range view.Devices {
			d := &view.Devices[i]
			texts[d.ID] = max(texts[d.ID], d.Regions.Kernel.MaxBytesPerCore)
			if using[d.ID] {
				sharers[d.ID] = append(sharers[d.ID], d.share(p.pid))
			}
		}
		snap.Processes = append(snap.Processes, view)
	}
	for i := range s.exited {
		snap.Processes = append(snap.Processes, s.exited[i].view)
	}
	free := s.freeSpaces()
	for _, id := range sortedKeys(s.chips) {
		c := s.chips[id]
		d := c.used.view(c, &c.capacities, texts[id], c.peaks())
		for region := range event.Region(event.BankedRegions) {
			d.Regions.Banked(region).FreeSpace = free.of(id, region, c.capacities[region])
		}
		d.Sharers = sharers[id]
		snap.Devices = append(snap.Devices, d)
	}
	return snap
}

func (p *process) view() Process {
	view := Process{
		PID: p.pid, Comm: p.comm, About: p.about, BeforeAttachBuffers: p.beforeAttach,
		SinceNs: p.since, Devices: []Device{},
	}
	for _, id := range sortedKeys(p.chips) {
		c := p.chips[id]
		view.Devices = append(view.Devices, c.used.view(c.chip, c.capacities(), c.textMax(), c.peaks))
	}
	for region, l := range p.held {
		if l.Buffers > 0 {
			l.Region = event.Region(region).String()
			view.Held = append(view.Held, l)
		}
	}
	view.Left = p.leftView()
	return view
}

func (u *usage) view(c *chip, capacities *capacities, textMax uint64, peaks peaks) Device {
	d := Device{ID: c.id, Board: c.board, Arch: c.arch}
	l1Peak := peaks[event.L1]
	peaks[event.L1] = u.l1Buffers // of all banks, as that of other regions
	for r := range u.regions {
		*d.Regions.Banked(event.Region(r)) = u.regions[r].view(capacities[r], &peaks[r])
	}
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
	l1.BufferBytes, l1.CBBytes = d.Regions.L1.BytesPerBank, u.static.cores.Max()
	if used := l1.BufferBytes + l1.CBBytes; used < l1.CapacityBytes {
		l1.FreeBytes = l1.CapacityBytes - used
	}
	l1.Peak = L1Peak{TimeNs: l1Peak.time, BufferBytes: l1Peak.bytes - l1Peak.static, CBBytes: l1Peak.static}
	return d
}

func (r *regionUsage) view(capacity event.Capacity, most *peak) Region {
	view := Region{
		Buffers: r.buffers, SizeBytes: r.size, BytesPerBank: r.perBank,
		Banks: capacity.Banks, AllocatedBytes: r.allocated,
		CapacityBytes: total(capacity), CapacityBytesPerBank: capacity.BytesPerBank,
		PeakBytes: most.bytes, PeakTimeNs: most.time, PeakCapacityBytes: most.capacity,
	}
	if view.PeakCapacityBytes == 0 {
		// The device was seen after its first buffers.
		view.PeakCapacityBytes = view.CapacityBytes
	}
	return view
}

// peaks are the peaks of which this is the view, with nothing else in the usage.
func (d *Device) peaks() (u *usage, list peaks) {
	u = &usage{}
	for i := range list {
		b := d.Regions.Banked(event.Region(i))
		list[i] = peak{bytes: b.PeakBytes, time: b.PeakTimeNs, capacity: b.PeakCapacityBytes}
	}
	u.l1Buffers = list[event.L1]
	u.static.peak, u.static.peakTime = d.Regions.CB.PeakBytesPerCore, d.Regions.CB.PeakTimeNs
	u.kernels.dramPeak, u.kernels.textPeak = d.Regions.Kernel.PeakDRAMBytes, d.Regions.Kernel.PeakBytesPerCore
	l1 := d.L1PerCore.Peak
	list[event.L1] = peak{bytes: l1.BufferBytes + l1.CBBytes, static: l1.CBBytes, time: l1.TimeNs}
	return u, list
}

// capacities are those of which this is the view.
func (d *Device) capacities() (c capacities) {
	for i := range c {
		b := d.Regions.Banked(event.Region(i))
		c[i] = event.Capacity{Banks: b.Banks, BytesPerBank: b.CapacityBytesPerBank}
	}
	return c
}
