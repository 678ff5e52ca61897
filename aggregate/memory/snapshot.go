// Package memory has the values that a State returns: snapshots, profiles, buffers, call
// sites, peaks, failures and marks. They are plain values without a reference to the State. It
// also has the encoding of the values in checkpoints.
package memory

// A Snapshot is the state at one time, which /v1/snapshot of the service answers with.
//
// It does not change afterwards and must not be modified.
type Snapshot struct {
	// V is the version of the document.
	V int `json:"v"`
	// TimeNs is the time of the latest event or of the end of tracing. BeganNs is when
	// tracing began, 0 if that is not known. Both are CLOCK_MONOTONIC.
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	BeganNs uint64 `json:"began_ns,omitempty" wall:"began_wall_ns"`
	// Devices are the chips, in order of their ids.
	Devices []Device `json:"devices"`
	// Processes are the running ones in order of their ids, and then the latest ones
	// that ended, in order of their ends.
	Processes []Process `json:"processes"`
	// ExitedProcesses is how many have ended in all.
	ExitedProcesses uint64 `json:"exited_processes"`
	// Lost is how many events of no known process were lost, by cause. If there are any, totals
	// may be wrong. LostEvents is how many were lost in all.
	Lost       map[string]uint64 `json:"lost"`
	LostEvents uint64            `json:"lost_events,omitempty"`
	Anomalies  Anomalies         `json:"anomalies"`
	// FailureCount is how many allocations failed, and Failures are the latest 1000 of
	// them, oldest first.
	FailureCount uint64    `json:"failure_count"`
	Failures     []Failure `json:"failures"`
	// OverlapCount is how many buffers were assigned addresses that a buffer of another allocator had
	// on the same chip, and Overlaps are these by call site, oldest first.
	OverlapCount uint64    `json:"overlap_count,omitempty"`
	Overlaps     []Overlap `json:"overlaps,omitempty"`
	// UnsafeCount is how many buffers the replay of a captured trace may have overwritten, and Unsafe are these by
	// call site, oldest first.
	UnsafeCount uint64   `json:"unsafe_count,omitempty"`
	Unsafe      []Unsafe `json:"unsafe,omitempty"`
	// AfterFree are runs of programs that have the address of a freed buffer, by line, oldest first.
	AfterFree []AfterFree `json:"used_after_free,omitempty"`
	// OperationFailureCount and OperationFailures are the same for operations that failed for another
	// reason than memory.
	OperationFailureCount uint64    `json:"operation_failure_count,omitempty"`
	OperationFailures     []Failure `json:"operation_failures,omitempty"`
	// Stacks counts the call stacks that the tracer took; nil if it took none.
	//
	// The tracer sets it, not State.
	Stacks *Stacks `json:"stacks,omitempty"`
	// Reading is true while the tracer still reads the existing allocations of processes that
	// were attached late: totals are too low until then.
	//
	// The tracer sets it, not State.
	Reading bool `json:"reading,omitempty"`
}

// DeviceIDs are the ids of the chips, in order.
func (s *Snapshot) DeviceIDs() (ids []int) {
	for i := range s.Devices {
		ids = append(ids, s.Devices[i].ID)
	}
	return ids
}

// Anomalies count events that contradict the state. All but MalformedEvents come from lost
// events, or from a process that was attached late.
type Anomalies struct {
	// RepeatedFrees are frees of buffers that are not live: freed already, or never
	// seen.
	RepeatedFrees uint64 `json:"repeated_frees"`
	// ReplacedBuffers are allocations of a buffer that is live already. The later one
	// counts.
	ReplacedBuffers uint64 `json:"replaced_buffers"`
	// UnplacedBuffers are allocations on no known chip. They are live, but in no chip's
	// total.
	UnplacedBuffers uint64 `json:"unplaced_buffers"`
	// UnknownCores are buffers on single cores that are not known. They are live, but in no
	// core's total.
	UnknownCores uint64 `json:"unknown_cores,omitempty"`
	// MalformedEvents are ignored events, such as a circular buffer on a million cores.
	MalformedEvents uint64 `json:"malformed_events"`
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
