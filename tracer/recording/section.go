package recording

// A long file has checkpoints between its events. A checkpoint has the state before some block.
// It is made while more events are added, so it comes later in the file than that block. After
// it, reading continues at that block. Commands that need the state at the end begin at the last
// checkpoint; commands that read all events skip checkpoints.

const (
	// checkpointEvents is the minimum number of events between two checkpoints.
	checkpointEvents = 2 << 20
	// checkpointShare times the length of a checkpoint is written before the next one, so that
	// checkpoints take at most a fifth of a file.
	checkpointShare = 4
)

// section is a checkpoint that is ready to be written.
type section struct {
	of     *segment
	blocks []byte // none if it is too large: readers replay the events
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
	// Readers that begin here have no definitions.
	f.w.forget()
	made, of, frozen, resume := make(chan *section, 1), f.segment, f.o.Checkpoint(), f.w.Size()
	f.making = made
	go func() { made <- &section{of, checkpointBlocks(frozen, resume)} }()
	return nil
}

// due reports whether the next checkpoint is due.
func (f *File) due() bool {
	if f.o.CheckpointEvents > 0 {
		return f.since >= uint64(f.o.CheckpointEvents)
	}
	return f.since >= checkpointEvents && f.w.Size()-f.checked >= checkpointShare*f.checkpointBytes
}

// writeSection writes a checkpoint, unless another file has begun or the file has no room for it.
func (f *File) writeSection(s *section) error {
	if len(s.blocks) == 0 || s.of != f.segment {
		return nil
	}
	f.checkpointBytes = int64(len(s.blocks))
	if f.o.MaxBytes > 0 && f.w.Size()+int64(len(s.blocks)+f.w.largest)+endMark > f.o.MaxBytes {
		return nil // the next file begins with a checkpoint
	}
	return f.w.append(s.blocks)
}

// Settle waits for the checkpoint in preparation and writes it. Flush must have been called.
func (f *File) Settle() error {
	if f.making == nil {
		return nil
	}
	s := <-f.making
	f.making = nil
	return f.writeSection(s)
}
