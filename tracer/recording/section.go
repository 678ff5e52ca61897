package recording

import (
	"bytes"

	"ttmem/tracer/event"
)

// A long file has checkpoints between its events. Each has the state before some block. It is
// made while events are added, and so comes later in the file than that block, at which
// reading continues. Commands that need the state at the end begin at the last checkpoint;
// those that read all events skip them.

const (
	// checkpointEvents is the minimum number of events between two checkpoints.
	checkpointEvents = 2 << 20
	// checkpointShare times the length of a checkpoint are written before the next one, so
	// that checkpoints are a fifth of a file at most.
	checkpointShare = 4
)

// section is a checkpoint that is ready to be written.
type section struct {
	of     *segment
	blocks []byte // nil: they could not be made
}

// checkpoint begins a checkpoint if one is due, and writes one that is ready. Flush must have
// been called.
func (f *File) checkpoint() error {
	select {
	case s := <-f.making:
		f.making = nil
		if err := f.writeSection(s); err != nil {
			return err
		}
	default:
	}
	if f.o.Checkpoint == nil || f.stream || f.making != nil || !f.due() {
		return nil
	}
	f.since, f.checked = 0, f.w.Size()
	// readers that begin here have no definitions
	f.w.forget()
	f.making = make(chan *section, 1)
	go makeSection(f.making, f.segment, f.o.Checkpoint(), f.w.Size())
	return nil
}

// due reports whether the next checkpoint is due.
func (f *File) due() bool {
	if f.o.CheckpointEvents > 0 {
		return f.since >= uint64(f.o.CheckpointEvents)
	}
	return f.since >= checkpointEvents && f.w.Size()-f.checked >= checkpointShare*f.checkpointBytes
}

// makeSection makes the blocks of a checkpoint.
func makeSection(done chan<- *section, of *segment, checkpoint func() *event.Event, resume int64) {
	s := &section{of: of}
	var out bytes.Buffer
	if w, err := newWriter(&out); err == nil {
		w.next.flags = blockReset
		_ = w.checkpoint(checkpoint(), resume) // a write to memory does not fail
		s.blocks = out.Bytes()
	}
	done <- s
}

// writeSection writes a checkpoint, unless another file was begun meanwhile or the file has no
// room for it.
func (f *File) writeSection(s *section) error {
	if s.blocks == nil || s.of != f.segment {
		return nil
	}
	f.checkpointBytes = int64(len(s.blocks))
	if f.o.MaxBytes > 0 && f.w.Size()+int64(len(s.blocks)+f.w.largest)+endMark > f.o.MaxBytes {
		return nil // the file that follows begins with a checkpoint
	}
	return f.w.append(s.blocks)
}

// Settle waits for the checkpoint that is being made, and writes it. Flush must have been
// called.
func (f *File) Settle() error {
	if f.making == nil {
		return nil
	}
	s := <-f.making
	f.making = nil
	return f.writeSection(s)
}
