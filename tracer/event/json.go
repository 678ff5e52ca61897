package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Version is the "v" of records.
const Version = 1

// A Record is an event in JSON documents. Fields that do not apply to the event's kind are left out: those
// with a pointer are there even if they are 0.
type Record struct {
	V              int                 `json:"v"`
	TimeNs         uint64              `json:"time_ns" wall:"wall_ns"`
	Kind           string              `json:"kind" schema:"kind"`
	PID            *int                `json:"pid,omitempty" user:"user"`
	TID            int                 `json:"tid,omitempty"`
	Comm           string              `json:"comm,omitempty"`
	Devices        []int               `json:"devices,omitzero"`
	Region         string              `json:"region,omitempty" schema:"region"`
	ProgramID      *uint64             `json:"program_id,omitempty"`
	TraceID        *uint64             `json:"trace_id,omitempty"`
	Uses           []uint32            `json:"uses,omitzero"`
	UsesStatic     []uint32            `json:"uses_static,omitzero"`
	UsesPartial    bool                `json:"uses_partial,omitempty"`
	BufferID       *uint64             `json:"buffer_id,omitempty"`
	Object         *uint64             `json:"object,omitempty"`
	Allocator      *uint64             `json:"allocator,omitempty"`
	Address        *uint64             `json:"address,omitempty"`
	SizeBytes      *uint64             `json:"size_bytes,omitempty"`
	PageSizeBytes  *uint64             `json:"page_size_bytes,omitempty"`
	Layout         string              `json:"layout,omitempty" schema:"layout"`
	BytesPerBank   *uint64             `json:"bytes_per_bank,omitempty"`
	Banks          *uint32             `json:"banks,omitempty"`
	PerCore        bool                `json:"per_core,omitempty"`
	Cores          [][4]uint16         `json:"cores,omitzero"`
	StaticKind     string              `json:"static_kind,omitempty" schema:"static_kind"`
	Global         bool                `json:"global,omitempty"`
	KernelKind     string              `json:"kernel_kind,omitempty" schema:"kernel_kind"`
	Reason         string              `json:"reason,omitempty" schema:"reason"`
	Message        string              `json:"message,omitempty"`
	NeededBytes    uint64              `json:"needed_bytes,omitempty"`
	AvailableBytes uint64              `json:"available_bytes,omitempty"`
	HostBytes      *uint64             `json:"host_bytes,omitempty"`
	HostPeakBytes  *uint64             `json:"host_peak_bytes,omitempty"`
	Board          string              `json:"board,omitempty"`
	Arch           string              `json:"arch,omitempty"`
	Mesh           bool                `json:"mesh,omitempty"`
	Capacities     map[string]Capacity `json:"capacities,omitzero"`
	Command        string              `json:"command,omitempty"`
	Library        string              `json:"library,omitempty"`
	Release        string              `json:"release,omitempty"`
	Count          *uint64             `json:"count,omitempty"`
	Cause          string              `json:"cause,omitempty"`
	UID            *int                `json:"uid,omitempty"`
	Container      string              `json:"container,omitempty"`
	Pod            string              `json:"pod,omitempty"`
	ContainerPID   int                 `json:"container_pid,omitempty"`
	AttachedLate   bool                `json:"attached_late,omitempty"`
	ExitStatus     *int                `json:"exit_status,omitempty"`
	BeforeAttach   bool                `json:"before_attach,omitempty"`
	Reread         bool                `json:"reread,omitempty"`
	Stack          *Stack              `json:"stack,omitempty"`
}

// Record returns the event's record. There is none of a Checkpoint.
func (e *Event) Record() *Record {
	// what other kinds do not have is empty
	start, open := e.Started(), e.Opened()
	r := &Record{
		V: Version, TimeNs: e.TimeNs, Kind: e.Kind.String(), TID: e.TID, Comm: e.Comm, StaticKind: e.StaticKind.String(), Global: e.Global,
		Reason: e.Reason.String(), Message: e.Message, Board: open.Board, Arch: open.Arch, Command: start.Command, Library: start.Library,
		Release: start.Release, Cause: e.Cause, Container: start.Container, Pod: start.Pod, ContainerPID: start.ContainerPID, AttachedLate: start.AttachedLate,
		PerCore: e.PerCore, BeforeAttach: e.BeforeAttach, Reread: e.Reread, Stack: e.Stack,
	}
	// Lost events belong to no process where the whole buffer was full, and marks of
	// users never do.
	if e.Kind < Lost || e.PID != 0 {
		r.PID = &e.PID
	}
	for _, c := range e.Cores {
		r.Cores = append(r.Cores, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
	}
	if e.Kind == Free {
		r.Cores = nil
	}
	if r.Devices = e.Devices; len(r.Devices) == 0 {
		r.Devices = nil
	}
	switch e.Kind {
	case Alloc, Free:
		r.setBuffer(e)
		r.BufferID, r.Object, r.Address = &e.BufferID, &e.Object, &e.Address
		if e.Kind == Free {
			r.PageSizeBytes = nonzero(&e.PageSizeBytes)
		}
	case AllocFailed:
		if e.Region < CB && (e.Reason == ReasonOutOfMemory || e.Reason == NoReason) {
			r.setBuffer(e)
		} else if r.Region, r.Allocator = e.Region.String(), nonzero(&e.Allocator); e.Region >= CB {
			r.ProgramID, r.SizeBytes = &e.ProgramID, nonzero(&e.SizeBytes)
		}
		if l, ok := LimitsIn(e.Message); ok && e.Reason != ReasonOutOfMemory && e.Reason != NoReason {
			r.NeededBytes, r.AvailableBytes = l.NeededBytes, l.AvailableBytes
		}
	case CBAlloc:
		r.setProgram(e, CB)
		r.Address, r.SizeBytes, r.Cores = &e.Address, &e.SizeBytes, present(r.Cores)
	case KernelLoad:
		r.setProgram(e, Kernel)
		r.SizeBytes, r.BytesPerBank, r.Cores = &e.SizeBytes, &e.BytesPerBank, present(r.Cores)
		r.KernelKind = e.KernelKind.String()
	case CBFree:
		r.setProgram(e, CB)
	case KernelUnload:
		r.setProgram(e, Kernel)
	case ProgramRun:
		r.ProgramID = &e.ProgramID
		if e.Uses != nil {
			r.Uses, r.UsesStatic, r.UsesPartial = present(e.Uses.Arguments), present(e.Uses.Statics), e.Uses.Partial
		}
	case TraceBegin, TraceEnd, TraceReplay, TraceRelease:
		r.TraceID = &e.ProgramID
	case HostMemory:
		r.HostBytes, r.HostPeakBytes = &e.SizeBytes, &e.BytesPerBank
	case BufferWrite, BufferRead:
		r.BufferID, r.Object, r.Region = &e.BufferID, &e.Object, e.Region.String()
	case Owner:
		if e.BufferID != NoBuffer {
			r.BufferID = &e.BufferID
		}
	case DeviceOpen, DeviceClose:
		r.Allocator = &e.Allocator
	case ProcessStart, Mark:
		r.UID = &e.UID
	case Lost:
		r.Count = &e.Count
	}
	switch e.Kind {
	case Alloc, Free, AllocFailed, OperationFailed, CBAlloc, KernelLoad, DeviceOpen, DeviceClose, ProgramRun, TraceBegin, TraceEnd, TraceReplay, TraceRelease, BufferWrite, BufferRead: // others mean all of them
		r.Devices = present(r.Devices)
	}
	if e.Kind == DeviceOpen {
		r.Mesh = e.Mesh
		r.Capacities = make(map[string]Capacity)
		for region, c := range open.Capacities {
			if c != (Capacity{}) {
				r.Capacities[Region(region).String()] = c
			}
		}
	}
	if e.Kind == ProcessExit && e.ExitStatus != UnknownStatus {
		r.ExitStatus = &e.ExitStatus
	}
	return r
}

// setBuffer sets what describes a buffer, or the request for one.
func (r *Record) setBuffer(e *Event) {
	r.Region, r.Layout, r.Allocator = e.Region.String(), e.Layout.String(), nonzero(&e.Allocator)
	r.SizeBytes, r.PageSizeBytes, r.BytesPerBank, r.Banks = &e.SizeBytes, &e.PageSizeBytes, &e.BytesPerBank, &e.Banks
}

func (r *Record) setProgram(e *Event, of Region) { r.Region, r.ProgramID = of.String(), &e.ProgramID }

// present returns a list that is not nil.
func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// nonzero returns nil for a pointer to 0.
func nonzero(v *uint64) *uint64 {
	if *v == 0 {
		return nil
	}
	return v
}

// MarshalJSON gives the frame as records have it: with a name it needs no address.
func (f Frame) MarshalJSON() ([]byte, error) {
	type frame Frame
	if f.Name != "" {
		f.Address = 0
	}
	return MarshalJSON(frame(f))
}

// unprintable reports whether a character of a JSON text is to be escaped.
func unprintable(r rune) bool { return r >= 0x7f && !printable(r) }

// appendEscape appends a character as JSON escapes it: in UTF-16.
func appendEscape(b []byte, r rune) []byte {
	for _, unit := range utf16.AppendRune(nil, r) {
		b = fmt.Appendf(b, "\\u%04x", unit)
	}
	return b
}

// MarshalJSON returns v as JSON, in which characters that are not printable are escaped. Bytes that are not
// UTF-8 become U+FFFD.
func MarshalJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return escaped(text), nil
}

// escaped escapes the characters of a JSON text that are unprintable. It means the same as
// before.
func escaped(text []byte) []byte {
	var b []byte
	for {
		n := bytes.IndexFunc(text, unprintable)
		if n < 0 && b == nil {
			return text
		}
		if n < 0 {
			return append(b, text...)
		}
		r, size := utf8.DecodeRune(text[n:])
		b = appendEscape(append(b, text[:n]...), r)
		text = text[n+size:]
	}
}
