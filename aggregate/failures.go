package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// keptFailures is how many failures a State remembers.
const keptFailures = 1000

// A Failure is a request for device memory that the library answered with an
// exception.
type Failure struct {
	TimeNs  uint64 `json:"time_ns"`
	PID     int    `json:"pid"`
	TID     int    `json:"tid,omitempty"`
	Comm    string `json:"comm,omitempty"`
	Devices []int  `json:"devices"`
	Region  string `json:"region"`
	Reason  string `json:"reason,omitempty"`
	// SizeBytes is what was asked for on each chip, BytesPerBank on each of
	// Banks banks.
	SizeBytes    uint64 `json:"size_bytes,omitempty"`
	BytesPerBank uint64 `json:"bytes_per_bank,omitempty"`
	Banks        uint32 `json:"banks,omitempty"`
	ProgramID    uint64 `json:"program_id,omitempty"`
	// Message is what the library threw.
	Message string       `json:"message,omitempty"`
	Stack   *event.Stack `json:"stack,omitempty"`
}

// failures is a list that only grows at its end, so that snapshots may share
// it.
type failures struct {
	count uint64
	list  []Failure
}

func (f *failures) add(e *event.Event) {
	f.count++
	if len(f.list) == 2*keptFailures {
		f.list = slices.Clone(f.newest())
	}
	f.list = append(f.list, Failure{
		TimeNs: e.TimeNs, PID: e.PID, TID: e.TID, Comm: e.Comm,
		Devices: append([]int{}, e.Devices...),
		Region:  e.Region.String(), Reason: e.Reason.String(),
		SizeBytes: e.SizeBytes, BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, Message: e.Message, Stack: e.Stack,
	})
}

// newest are the failures that are remembered, oldest first.
func (f *failures) newest() []Failure {
	return slices.Clip(f.list[max(0, len(f.list)-keptFailures):])
}
