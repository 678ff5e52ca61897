package recording

import (
	"slices"

	"ttmem/tracer/event"
)

// A shape is what many events have in common: their thread, device, kind and region, and
// which columns have a value for the event.
type shape struct {
	kind     event.Kind
	region   event.Region
	layout   event.Layout
	static   event.StaticKind
	reason   event.Reason
	flags    uint8
	has      uint8
	banks    uint32
	comm     uint32
	devices  uint32 // numbers of lists; 0: nil
	cores    uint32
	pid, tid int
	alloc    uint64
}

// The flags of a shape.
const (
	flagGlobal = 1 << iota
	flagBeforeAttach
	flagMesh
	flagAttachedLate
	flagPerCore
	allFlags = 1<<iota - 1
)

// The columns that have a value for the events of a shape.
const (
	hasObject = 1 << iota
	hasBuffer
	hasAddress
	hasSize
	hasProgram
	hasStack
	hasExtra
	allHas = 1<<iota - 1
)

// Fields that few events have.
const (
	extraMessage = 1 + iota
	extraCapacities
	extraBoard
	extraArch
	extraCommand
	extraLibrary
	extraRelease
	extraUID
	extraContainer
	extraPod
	extraContainerPID
	extraExitStatus
	extraCount
	extraCause
	extraBases
)

func flagsOf(e *event.Event) (f uint8) {
	if e.Global {
		f |= flagGlobal
	}
	if e.BeforeAttach {
		f |= flagBeforeAttach
	}
	if e.Mesh {
		f |= flagMesh
	}
	if e.AttachedLate {
		f |= flagAttachedLate
	}
	if e.PerCore {
		f |= flagPerCore
	}
	return f
}

func hasOf(e *event.Event) (h uint8) {
	if e.Object != 0 {
		h |= hasObject
	}
	if e.BufferID != 0 {
		h |= hasBuffer
	}
	if e.Address != 0 {
		h |= hasAddress
	}
	if e.SizeBytes|e.PageSizeBytes|e.BytesPerBank != 0 {
		h |= hasSize
	}
	if e.ProgramID != 0 {
		h |= hasProgram
	}
	if e.Stack != nil {
		h |= hasStack
	}
	if extra(e) {
		h |= hasExtra
	}
	return h
}

// extra reports whether the event has one of the fields that few have.
func extra(e *event.Event) bool {
	return e.Message != "" || e.Board != "" || e.Arch != "" ||
		e.Command != "" || e.Library != "" || e.Release != "" ||
		e.Container != "" || e.Pod != "" || e.Cause != "" ||
		e.UID|e.ContainerPID|e.ExitStatus != 0 || e.Count != 0 ||
		e.Capacities != [event.BankedRegions]event.Capacity{}
}

// appendExtra appends the fields that few events have.
func appendExtra(b []byte, e *event.Event, d *definitions) []byte {
	text := func(number int, s string) {
		if s != "" {
			b = appendTextField(b, number, s)
		}
	}
	shared := func(number int, s string) {
		if s != "" {
			b = appendUvarint(appendTag(b, number, typeString), uint64(d.string(s)))
		}
	}
	number := func(number, v int) {
		if v != 0 {
			b = appendIntField(b, number, int64(v))
		}
	}
	text(extraMessage, e.Message)
	if e.Capacities != [event.BankedRegions]event.Capacity{} {
		var c, bases []byte
		known := uint64(0)
		for _, of := range e.Capacities {
			c = appendUvarint(appendUvarint(c, uint64(of.Banks)), of.BytesPerBank)
			bases, known = appendUvarint(bases, of.Base), known|of.Base
		}
		b = append(appendUvarint(appendTag(b, extraCapacities, typeText), uint64(len(c))), c...)
		if known != 0 {
			b = append(appendUvarint(appendTag(b, extraBases, typeText), uint64(len(bases))), bases...)
		}
	}
	shared(extraBoard, e.Board)
	shared(extraArch, e.Arch)
	text(extraCommand, e.Command)
	shared(extraLibrary, e.Library)
	shared(extraRelease, e.Release)
	number(extraUID, e.UID)
	text(extraContainer, e.Container)
	text(extraPod, e.Pod)
	number(extraContainerPID, e.ContainerPID)
	number(extraExitStatus, e.ExitStatus)
	if e.Count != 0 {
		b = appendUintField(b, extraCount, e.Count)
	}
	shared(extraCause, e.Cause)
	return appendUvarint(b, 0)
}

// lists are the lists of a block that its shapes refer to. Their numbers begin at 1; 0 is
// nil.
type lists[T comparable] struct{ known [][]T }

// searched is the number of lists that are searched for an equal one.
const searched = 64

// is reports whether the list with a number has the same content.
func (l *lists[T]) is(number uint32, list []T) bool {
	if list == nil || number == 0 {
		return list == nil && number == 0
	}
	return slices.Equal(l.known[number-1], list)
}

// number returns the number of a list, which is new if it is beyond the known ones.
func (l *lists[T]) number(list []T) (n uint32) {
	if list == nil {
		return 0
	}
	for i := len(l.known) - 1; i >= max(0, len(l.known)-searched); i-- {
		if slices.Equal(l.known[i], list) {
			return uint32(i + 1)
		}
	}
	return uint32(len(l.known) + 1)
}

func (l *lists[T]) reset() {
	clear(l.known)
	l.known = l.known[:0]
}
