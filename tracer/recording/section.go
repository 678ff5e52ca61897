package recording

import (
	"bytes"
	"iter"

	"ttmem/tracer/event"
)

// A section is a checkpoint in the middle of a file: events that bring a reader to the
// state that the events before a block have made, and what it needs to read them. Who
// wants the state at the end of a long recording begins at the last section; who reads
// all events passes over it.

const (
	// checkpointEvents is how many events there are between two sections at least.
	checkpointEvents = 2 << 20
	// checkpointShare is how many times the events of a section there are before the
	// next one: it costs a share of that more.
	checkpointShare = 4
)

// section is one that is ready to be written.
type section struct {
	of     *segment
	resume int64 // the offset of the block that follows its state
	events uint64
	blocks []byte // nil: they could not be made
}

// The fields of the block that begins a section.
const (
	// sectionBack is how many bytes before this block the one begins with which
	// reading goes on after the section.
	sectionBack = 1 + iota
	// sectionLength is how many bytes the blocks of the section have, which follow.
	sectionLength
	// sectionEvents is how many events they have.
	sectionEvents
)

// checkpoint begins a section when it is time for one, and writes what is ready. What
// was added must have been flushed.
func (f *File) checkpoint() error {
	select {
	case s := <-f.making:
		f.making = nil
		if err := f.writeSection(s); err != nil {
			return err
		}
	default:
	}
	if f.o.Checkpoint == nil || f.stream || f.making != nil || f.since < max(f.least(), checkpointShare*f.told) {
		return nil
	}
	f.since = 0
	// Who begins here knows no definitions.
	f.w.forget()
	f.making = make(chan *section, 1)
	go makeSection(f.making, &section{of: f.segment, resume: f.w.Size()}, f.takeCheckpoint())
	return nil
}

// takeCheckpoint is the state now; nil where there is none.
func (f *File) takeCheckpoint() iter.Seq[*event.Event] {
	if f.o.Checkpoint == nil {
		return nil
	}
	return f.o.Checkpoint()
}

// writeCheckpoint writes a checkpoint, which may be nil, and reports how many events it has.
func writeCheckpoint(w *Writer, of iter.Seq[*event.Event]) (events uint64, err error) {
	if of == nil {
		return 0, nil
	}
	for e := range of {
		w.Add(e)
		events++
		if w.Full() {
			if err := w.Flush(); err != nil {
				return events, err
			}
		}
	}
	return events, w.Flush()
}

// least is how many events are between two sections at least.
func (f *File) least() uint64 {
	if f.o.CheckpointEvents > 0 {
		return uint64(f.o.CheckpointEvents)
	}
	return checkpointEvents
}

// makeSection makes the blocks of a section.
func makeSection(done chan<- *section, s *section, of iter.Seq[*event.Event]) {
	var out bytes.Buffer
	w, err := newWriter(&out)
	if err != nil {
		done <- s
		return
	}
	w.kind, w.flags = blockState, blockReset|blockCheckpoint
	s.events, _ = writeCheckpoint(w, of) // a write to memory does not fail
	s.blocks = out.Bytes()
	done <- s
}

// writeSection writes a section, unless another file has begun since or it has no room.
func (f *File) writeSection(s *section) error {
	if s.blocks == nil || s.of != f.segment {
		return nil
	}
	f.told = s.events
	if f.o.MaxBytes > 0 && f.w.Size()+int64(len(s.blocks)+f.w.largest)+endMark > f.o.MaxBytes {
		return nil // the file that follows begins with a checkpoint
	}
	p := appendUintField(nil, sectionBack, uint64(f.w.Size()-s.resume))
	p = appendUintField(p, sectionLength, uint64(len(s.blocks)))
	p = appendUintField(p, sectionEvents, s.events)
	p = appendUvarint(p, 0)
	if err := f.w.write(head{kind: blockSection, raw: uint32(len(p))}, p); err != nil {
		return err
	}
	return f.w.append(s.blocks)
}

// Settle waits for the checkpoint that is being made, and writes it. What was added must
// have been flushed.
func (f *File) Settle() error {
	if f.making == nil {
		return nil
	}
	s := <-f.making
	f.making = nil
	return f.writeSection(s)
}
