package eventlog

import (
	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// Line is a line of `ttmem log --json`.
type Line struct {
	event.Record
	Note *Note `json:"note,omitempty"`
}

// Note is the "note" of a line of `ttmem log --json`.
type Note struct {
	// SinceBeginNs is the time since the first event.
	SinceBeginNs uint64 `json:"since_begin_ns"`
	// Kinds are the notes on the event, as --kind names them.
	Kinds []string `json:"kinds,omitempty"`
	// Name and Component belong to the allocated or freed memory.
	Name      string `json:"name,omitempty"`
	Component string `json:"component,omitempty"`
	// Class is what an allocated or freed buffer is for; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// OwnsData and Hooked are the flags of the Buffer: views and hooked buffers make no events.
	OwnsData *bool `json:"owns_data,omitempty"`
	Hooked   *bool `json:"hooked,omitempty"`
	// FreedBy is the line that freed the buffer; left out if it is not known. The event has the call
	// stack.
	FreedBy string `json:"freed_by,omitempty"`
	// LivedNs is the lifetime of a freed buffer; a lower bound if it was allocated before
	// the attach.
	LivedNs *uint64 `json:"lived_ns,omitempty"`
	// AllocatedNs and AllocatedBy are the time and the call stack of the allocation of a
	// freed buffer.
	AllocatedNs uint64       `json:"allocated_ns,omitempty" wall:"allocated_wall_ns"`
	AllocatedBy *event.Stack `json:"allocated_by,omitempty"`
	// Other is the buffer that the event's buffer replaces, or that was already
	// freed. Earlier is the previous buffer at the address, with another size.
	Other   *Other `json:"other,omitempty"`
	Earlier *Other `json:"earlier,omitempty"`
}

// Other is another buffer.
//
//schema:other_buffer
type Other struct {
	PID          int    `json:"pid" user:"user"`
	BufferID     uint64 `json:"buffer_id"`
	Address      uint64 `json:"address"`
	SizeBytes    uint64 `json:"size_bytes"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	SinceNs      uint64 `json:"since_ns" wall:"since_wall_ns"`
	// EndNs is when the buffer was freed; left out while it is live.
	EndNs uint64       `json:"end_ns,omitempty" wall:"end_wall_ns"`
	Name  string       `json:"name"`
	Stack *event.Stack `json:"stack,omitempty"`
	// FreedBy is the line that freed it; left out if it is not known.
	FreedBy string `json:"freed_by,omitempty"`
}

func (l *Log) record(e *event.Event, n *analyze.Note) *Line {
	note := Note{SinceBeginNs: e.TimeNs - min(l.Begin, e.TimeNs), Kinds: notesOf(n)}
	stack := e.Stack
	if buffer := n.Ended; buffer != nil {
		stack = buffer.Stack
		lived := e.TimeNs - min(buffer.SinceNs, e.TimeNs)
		note.LivedNs, note.AllocatedNs, note.AllocatedBy, note.FreedBy = &lived, buffer.SinceNs, buffer.Stack, l.freer(buffer.FreedBy)
	}
	if e.Kind == event.Alloc || e.Kind == event.Free {
		yes, no := true, false
		note.OwnsData, note.Hooked = &yes, &no
	}
	if stack != nil {
		s := l.site(stack)
		note.Name, note.Component = s.Name.String(), s.Component
		if e.Kind == event.Alloc || n.Ended != nil {
			note.Class = (&alloc.Row{Site: s.Site, Region: e.Region}).Class().String()
		}
	}
	if n.Replaced != nil {
		note.Other = l.other(n.Replaced)
		note.Other.EndNs = 0 // the event of its end is missing
	}
	if n.Freed != nil {
		note.Other = l.other(n.Freed)
	}
	if n.Earlier != nil {
		note.Earlier = l.other(n.Earlier)
	}
	return &Line{*e.Record(), &note}
}

func (l *Log) other(u *analyze.Use) *Other {
	return &Other{
		PID: u.PID, BufferID: u.BufferID, Address: u.Address, SizeBytes: u.SizeBytes, BytesPerBank: u.BytesPerBank,
		SinceNs: u.SinceNs, EndNs: u.EndNs, Name: l.site(u.Stack).Name.String(), Stack: u.Stack, FreedBy: l.freer(u.FreedBy),
	}
}
