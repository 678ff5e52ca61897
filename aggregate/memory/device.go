package memory

import (
	"ttmem/tracer/event"
)

// A Device is a chip and its use by all processes, or by one of them.
type Device struct {
	ID      int     `json:"id"`
	Board   string  `json:"board,omitempty"`
	Arch    string  `json:"arch,omitempty"`
	Regions Regions `json:"regions"`
	// L1PerCore is the use of each core's L1 by buffers and circular buffers.
	L1PerCore L1PerCore `json:"l1_per_core"`
	// Failures counts the allocations that failed on the chip, by region. Only the Snapshot's
	// Devices have it, for metrics; documents have the Snapshot's Failures.
	Failures [event.NumRegions]uint64 `json:"-"`
	// Processes are the processes that use the chip now, in order of their ids. Only the
	// chips of a snapshot have them, not those of a process.
	Processes []DeviceProcess `json:"sharers,omitempty"`
	// OtherUsers replaces the Processes of other users in what one user sees; nil if there are
	// none.
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
//
//schema:region_use
type Region struct {
	Buffers uint64 `json:"buffers"`
	// SizeBytes is the sum of the buffers' sizes, not rounded to pages and banks.
	SizeBytes uint64 `json:"size_bytes"`
	// BytesPerBank is the sum of the buffers' bytes in each bank, which tt-metal calls
	// total_bytes_allocated_per_bank. A sharded buffer occupies all banks alike,
	// also on cores without a shard. Buffers that the hybrid allocator places on
	// single cores, which tt-metal leaves out there, occupy the banks of these cores: the
	// sum is that of the fullest bank.
	BytesPerBank uint64 `json:"bytes_per_bank"`
	// Banks is the number of banks, each of CapacityBytesPerBank; 0 if it is not known.
	Banks uint32 `json:"banks"`
	// OverlapBytesPerBank is how much of each bank several allocators assigned to buffers. It is counted
	// once. Only the chips of a snapshot have it, not those of a process.
	OverlapBytesPerBank uint64 `json:"overlap_bytes_per_bank,omitempty"`
	// AllocatedBytes is the sum of the buffers' bytes in all their banks.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// CapacityBytes is the capacity of all banks, 0 if it is not known. It stays when no
	// process has the chip open any more.
	CapacityBytes        uint64 `json:"capacity_bytes"`
	CapacityBytesPerBank uint64 `json:"capacity_bytes_per_bank"`
	// FreeSpace is the free space of each bank; nil if the addresses of the region are not
	// known. Only the chips of a snapshot have it, not those of a process.
	*FreeSpace
	// PeakBytes is the highest AllocatedBytes, at PeakTimeNs. PeakCapacityBytes is the
	// capacity at that time. All are 0 for L1: L1PerCore has its peak.
	PeakBytes         uint64 `json:"peak_bytes,omitempty"`
	PeakTimeNs        uint64 `json:"peak_time_ns,omitempty" wall:"peak_wall_ns"`
	PeakCapacityBytes uint64 `json:"peak_capacity_bytes,omitempty"`
}

// A StaticUse is the use of a chip's L1 by circular and dataflow buffers. Those inside an L1
// buffer count only in GlobalCount.
type StaticUse struct {
	Programs    uint64 `json:"programs"`
	Count       uint64 `json:"count"`
	GlobalCount uint64 `json:"global_count"`
	// MaxBytesPerCore is what the largest program needs on its fullest core. Programs use the same
	// space one after the other, and only while they run.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// Bytes is the most that a program needs on all its cores.
	Bytes uint64 `json:"bytes"`
	// SumBytes is the plain sum over all programs.
	SumBytes uint64 `json:"sum_bytes"`
}

// A KernelsUse is the memory of programs' kernels on a chip.
//
//schema:kernel_use
type KernelsUse struct {
	Programs uint64 `json:"programs"`
	// MaxBytesPerCore is the largest text of a program on each core. Programs use the same
	// ring in L1, which is outside the banks.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
	// SumBytes is the plain sum of the text per core over all programs.
	SumBytes uint64 `json:"sum_bytes"`
	// DRAMBytes is the sum of the binaries in DRAM. They are in DRAM buffers, which count
	// in that region too.
	DRAMBytes uint64 `json:"dram_bytes"`
	// NotReported is true if a process has or had programs on the chip, or may have some from before the
	// attach, and the kernels of none were reported: of those from before the attach that have not run
	// again, and of all on a mock device with slow dispatch. Then the other figures are 0, and mean nothing.
	NotReported bool `json:"not_reported,omitempty"`
	// CommandQueue and Fabric are the kernels of the runtime, and CommandQueueOrFabric those of which
	// it is not known which of the two they are. They run on cores of their own, which are not among
	// the cores of L1PerCore, have no binaries in DRAM, and count in none of the other figures.
	CommandQueue         RuntimeKernels `json:"command_queue,omitzero"`
	Fabric               RuntimeKernels `json:"fabric,omitzero"`
	CommandQueueOrFabric RuntimeKernels `json:"command_queue_or_fabric,omitzero"`
}

// Of returns the kernels of one kind; nil for those of workers.
func (k *KernelsUse) Of(kind event.KernelKind) *RuntimeKernels {
	switch kind {
	case event.QueueKernels:
		return &k.CommandQueue
	case event.FabricKernels:
		return &k.Fabric
	case event.RuntimeKernels:
		return &k.CommandQueueOrFabric
	}
	return nil
}

// RuntimeKernels are the kernels of the runtime on a chip that have one kind.
type RuntimeKernels struct {
	Programs uint64 `json:"programs"`
	// MaxBytesPerCore is the largest text of a program on each of its cores; 0 if it is not known,
	// because tt-metal does not report that for all types of cores.
	MaxBytesPerCore uint64 `json:"max_bytes_per_core"`
}

// L1PerCore is the use of the L1 of each core, in bytes: buffers grow from the top down, circular
// and dataflow buffers from the base up. The figures are of the fullest core.
type L1PerCore struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	BufferBytes   uint64 `json:"buffer_bytes"`
	// CBBytes is the memory of the program that runs at this moment; 0 between runs.
	CBBytes   uint64 `json:"cb_bytes"`
	FreeBytes uint64 `json:"free_bytes"`
	// LargestProgramBytes is what the largest of the live programs needs when it runs.
	LargestProgramBytes uint64 `json:"largest_program_bytes"`
	// Peak is the highest sum of buffers and of one program that ran.
	Peak L1Peak `json:"peak"`
}

// An L1Peak is the highest sum of buffers and of one program that ran in the L1 of a core, in bytes.
type L1Peak struct {
	TimeNs      uint64 `json:"time_ns" wall:"wall_ns"`
	BufferBytes uint64 `json:"buffer_bytes"`
	CBBytes     uint64 `json:"cb_bytes"`
	// AtLeast is true if programs may have run that were not reported.
	AtLeast bool `json:"at_least,omitempty"`
}

// Bytes returns the sum.
func (p *L1Peak) Bytes() uint64 { return p.BufferBytes + p.CBBytes }

// A DeviceProcess is a process that uses a chip, with its share of the chip.
type DeviceProcess struct {
	PID int `json:"pid" user:"user"`
	// AllocatedBytes is the size of its buffers in all banks, by the names of the regions in
	// which it has any.
	AllocatedBytes map[string]uint64 `json:"allocated_bytes"`
	// CBMaxBytesPerCore is the size of its circular buffers on the core where they are
	// largest.
	CBMaxBytesPerCore uint64 `json:"cb_max_bytes_per_core"`
}

// Bytes returns the size of its buffers in all regions.
func (p *DeviceProcess) Bytes() uint64 {
	var sum uint64
	for _, n := range p.AllocatedBytes {
		sum += n
	}
	return sum
}

// OtherUsers is the sum of the other users' processes on a chip.
type OtherUsers struct {
	Processes int `json:"processes"`
	// AllocatedBytes is the memory of their buffers in all banks of all regions.
	AllocatedBytes uint64 `json:"allocated_bytes"`
}

// ShareOf returns the share of a process, whose view of the chip this is.
func (d *Device) ShareOf(pid int) DeviceProcess {
	p := DeviceProcess{PID: pid, AllocatedBytes: make(map[string]uint64), CBMaxBytesPerCore: d.Regions.CB.MaxBytesPerCore}
	for region := range event.Region(event.BankedRegions) {
		if b := d.Regions.Banked(region); b.Buffers > 0 {
			p.AllocatedBytes[region.String()] = b.AllocatedBytes
		}
	}
	return p
}
