package memory

import "ttmem/tracer/event"

// NoDevice is the id of a chip that is not known.
const NoDevice = -1

// A Profile is device memory by the call stack that allocated it: per process, chip and
// region. It does not change afterwards.
//
// The bytes are those of the State's totals. A buffer counts with its bytes in all banks of each
// chip. A circular buffer counts with its size on all its cores, by the plain sum over programs
// (StaticUse.SumBytes), because no share of the space that programs use in turn belongs to one stack. A program's kernels
// count with their binaries in DRAM (KernelsUse.DRAMBytes), which are in DRAM buffers and count
// there too. Circular buffers inside an L1 buffer only count there.
type Profile struct {
	// Samples are in order of process, chip and region, and then of the first allocation.
	Samples []Sample
	// Processes are those that were seen, in order of their ids.
	Processes []ProfileProcess
	// Peaks are those of all regions that were ever used, in order of chip and region. The peak
	// of L1 includes circular buffers, and that of DRAM kernels.
	Peaks []PeakPoint
	// FirstNs and LastNs are the times of the first and the latest event, CLOCK_MONOTONIC.
	FirstNs, LastNs uint64
}

// A Sample has the allocations of one call stack in one region of one chip.
type Sample struct {
	PID int
	// Device is the chip's id, or NoDevice.
	Device int
	Region event.Region
	// Stack is nil for allocations from before the attach, while the table of stacks was full,
	// or if no stacks were requested.
	Stack *event.Stack
	// Allocated counts all allocations.
	Allocated Amount
	// Live counts those that are live, and Ended those that were live when their device was
	// closed or their process ended.
	Live, Ended Amount
	// Peak counts those that were live at the peak of the region of the chip.
	Peak Amount
}

// Unfreed counts the allocations that were not freed explicitly.
func (s *Sample) Unfreed() Amount {
	sum := s.Live
	sum.Add(s.Ended)
	return sum
}

// A ProfileProcess is a process of a Profile.
type ProfileProcess struct {
	PID int
	// Comm is the name that the process started with, or of its first thread that was seen;
	// Command is its command line if that is known.
	Comm, Command string
}
