package memory

import "ttmem/tracer/event"

// NoDevice stands for the chip of what was allocated on no known one.
const NoDevice = -1

// A Profile is device memory by the call stack that allocated it: per process, chip and
// region. It does not change afterwards.
//
// The bytes are those of the State's totals: of a buffer what it takes of all
// its banks on each chip; of a circular buffer its size on all its cores, by
// the plain sum over programs (StaticUse.SumBytes), as no share of a union
// belongs to one stack; of a program's kernels their binaries in DRAM
// (KernelsUse.DRAMBytes), which lie in DRAM buffers and count there too.
// Circular buffers that lie in an L1 buffer are counted there alone.
type Profile struct {
	// Samples are in order of process, chip and region and otherwise as the stacks were
	// first seen.
	Samples []Sample
	// Processes are those that were seen, in order of their ids.
	Processes []ProfileProcess
	// Peaks are when each region that held any bytes was fullest, in order of chip and
	// region. Circular buffers are part of that of L1, and kernels of that of DRAM.
	Peaks []Peak
	// FirstNs and LastNs are the times of the first and the latest event, CLOCK_MONOTONIC.
	FirstNs, LastNs uint64
}

// A Sample is what one call stack allocated, in one region of one chip.
type Sample struct {
	PID int
	// Device is the chip's id, or NoDevice.
	Device int
	Region event.Region
	// Stack is nil for all that came without one: from before the attach, while
	// the table of stacks was full, or because none were wanted.
	Stack *event.Stack
	// Allocated is all that was ever allocated.
	Allocated Amount
	// Live is what was not given back explicitly: what is allocated now, and
	// what still was when its device was closed or its process ended.
	Live Amount
	// Peak is what was allocated when the region of the chip was fullest.
	Peak Amount
}

// A ProfileProcess is a process of a Profile.
type ProfileProcess struct {
	PID int
	// Comm is the name that the process started with, or of its first thread
	// that was seen; Command is its command line, where known.
	Comm, Command string
}

// A Peak is when one region of a chip was fullest: see RegionPeak.
type Peak struct {
	Device int
	Region event.Region
	Bytes  uint64
	TimeNs uint64
}
