package memory

import "ttmem/tracer/event"

// An Operation is one call stack of a process that runs programs on the same chips, whether
// they are compiled for that or come from the program cache.
type Operation struct {
	PID     int
	Devices []int        // must not be modified
	Stack   *event.Stack // nil if it is not known
	// Runs is how many programs it ran; 0 if that is not known, but programs were compiled.
	Runs uint64
	// Replays is how many of these runs were replays of captured traces. Without Runs it is how many
	// traces the call stack replayed whose programs are not known.
	Replays uint64
	// Failures is how often it failed with an exception of the library.
	Failures uint64
	// FirstNs and LastNs are the times of the first run and of the last one, or those at which
	// programs were compiled.
	FirstNs, LastNs uint64
	// Peak is the run and the core with the least headroom.
	Peak CoreUse
}

// OnlyReplayed reports whether the operation only replayed traces whose programs are not known.
func (o *Operation) OnlyReplayed() bool { return o.Replays > 0 && o.Runs == 0 && o.Peak.TimeNs == 0 }

// OnlyFailed reports whether the operation ran no program, and failed.
func (o *Operation) OnlyFailed() bool {
	return o.Failures > 0 && o.Runs == 0 && o.Replays == 0 && o.Peak.TimeNs == 0
}

// A CoreUse is the use of one core's L1 while a program ran, in bytes.
type CoreUse struct {
	TimeNs    uint64
	ProgramID uint64
	Device    int
	X, Y      uint16
	// CapacityBytes is the space for tensors and programs; 0 if it is not known.
	CapacityBytes uint64
	// TensorBytes is the memory of the live buffers of all processes. The other fields are the
	// program's own.
	TensorBytes, CBBytes, DFBBytes, ScratchpadBytes uint64
}

// Bytes returns the sum of the memory in use on the core.
func (u *CoreUse) Bytes() uint64 { return u.TensorBytes + u.StaticBytes() }

// StaticBytes returns the memory of the program on the core.
func (u *CoreUse) StaticBytes() uint64 { return u.CBBytes + u.DFBBytes + u.ScratchpadBytes }

// HeadroomBytes returns the free memory of the core, in one piece or not.
func (u *CoreUse) HeadroomBytes() uint64 { return u.CapacityBytes - min(u.CapacityBytes, u.Bytes()) }

// A ProgramRun is a program that ran on a chip, with the use of L1 on the fullest core at that time, and the
// program's part of it.
type ProgramRun struct {
	Point
	// Of is the operation that ran it; it must not be modified.
	Of                 *Operation
	Device             int
	Bytes, StaticBytes uint64
}

// A TracedRun is a program that runs Count times at each replay of a captured trace.
type TracedRun struct {
	ProgramID uint64
	Devices   []int        // must not be modified
	Stack     *event.Stack // of the operation that enqueued it during the capture
	Count     uint64
}
