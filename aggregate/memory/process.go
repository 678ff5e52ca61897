package memory

// A Process is one whose memory is traced.
type Process struct {
	PID int `json:"pid" user:"user"`
	// Comm is the name of the first thread that was seen.
	Comm string `json:"comm,omitempty"`
	About
	// BeforeAttachBuffers is how many buffers it had when ttmem attached, which were read
	// from its memory.
	BeforeAttachBuffers uint64 `json:"before_attach_buffers,omitempty"`
	// SinceNs is the time of its first event.
	SinceNs uint64 `json:"since_ns" wall:"since_wall_ns"`
	Losses
	// OwnerSearch is the latest search for the owners of its buffers; nil if there was none.
	OwnerSearch *OwnerSearch `json:"owner_search,omitempty"`
	// Host is its memory on the host; nil if that was not sampled.
	Host *HostMemory `json:"host_memory,omitempty"`
	// Devices are the chips that it has used, with its use of each.
	Devices []Device `json:"devices"`
	// Exit is nil while the process runs.
	Exit *Exit `json:"exit,omitempty"`
	// Live are its live buffers by region.
	Live []RegionTotal `json:"held,omitempty"`
	// Unfreed are buffers that the process did not free: they were live when it closed a device
	// or ended.
	Unfreed []RegionTotal `json:"left,omitempty"`
}

// A HostMemory is the memory of a process on the host.
type HostMemory struct {
	// ResidentBytes is now, or at the end of the process, and PeakBytes the most since its program began.
	ResidentBytes uint64 `json:"resident_bytes"`
	PeakBytes     uint64 `json:"peak_bytes"`
	// GrowthBytes is by how much it grew to the end; 0 if it did not, or if there was too little time to
	// judge: see docs/leaks.md.
	GrowthBytes uint64 `json:"growth_bytes,omitempty"`
}

// An OwnerSearch is a search of a process for the owners of its buffers.
type OwnerSearch struct {
	// TimeNs is when it ended, and Incomplete why not all owners were found; "" if the search was
	// complete.
	TimeNs     uint64 `json:"time_ns" wall:"wall_ns"`
	Incomplete string `json:"incomplete,omitempty"`
	// Buffers are the live buffers of the process, of which Unowned have no owner.
	Buffers uint64 `json:"buffers"`
	Unowned uint64 `json:"unowned"`
}

// About describes a process. It comes from its start event.
type About struct {
	Command string `json:"command,omitempty"`
	// Library is the path of the traced library and Release its release.
	Library string `json:"library,omitempty"`
	Release string `json:"release,omitempty"`
	// UID is the user that it runs as; 0 if it is not known.
	UID int `json:"uid"`
	// Container, Pod and ContainerPID are as in a process_start: see docs/events.md.
	Container    string `json:"container,omitempty"`
	Pod          string `json:"pod,omitempty"`
	ContainerPID int    `json:"container_pid,omitempty"`
	// AttachedLate marks a process that had opened a device before ttmem attached.
	AttachedLate bool `json:"attached_late,omitempty"`
}

// An Exit is the end of a process.
type Exit struct {
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	// Status is as in wait(2); nil if it is not known.
	Status *int `json:"status,omitempty"`
}

// A RegionTotal counts the live buffers of a process in one region, or those that it had when it
// closed a device or ended. A buffer on several chips counts once.
type RegionTotal struct {
	Region string `json:"region" schema:"banked_region"`
	// Reason is "device_close" or "process_exit"; empty for live buffers.
	Reason  string `json:"reason,omitempty" schema:"device_close|process_exit"`
	Buffers uint64 `json:"buffers"`
	// SizeBytes and AllocatedBytes are over all chips.
	SizeBytes      uint64 `json:"size_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
}
