package moment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// A File is a recording, open for reading. Its errors have its name, and say what to do.
type File struct {
	Name string
	// Created is when recording began by the wall clock, and BeganNs the same moment by
	// CLOCK_MONOTONIC.
	Created time.Time
	BeganNs uint64
	// Progress, if not nil, is called when Play begins, with the length of the file in bytes; 0 if that is
	// not known, as of a pipe.
	Progress func(size int64) Progress

	*recording.FileReader
}

// Progress shows how far a file was read.
type Progress interface {
	// Show is called now and then with the number of bytes that were read.
	Show(offset int64)
	// End is called after the last event.
	End()
}

// Open opens a recording. name is its name in errors; "" for the path.
func Open(path, name string) (*File, error) {
	if name == "" {
		name = path
	}
	f, err := recording.Open(path)
	switch {
	case path == "":
		return nil, errors.New("the name of the file is empty: name a recording")
	case errors.Is(err, fs.ErrNotExist):
		return nil, missingError(path)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s: permission denied; only the user who recorded it, or root with sudo, can read it", path)
	case err != nil:
		return nil, withoutEvents(err, name, "header")
	}
	return &File{Name: name, Created: f.Header().Created, BeganNs: f.Header().MonotonicNs, FileReader: f}, nil
}

// StateOnly continues at the last checkpoint: for the state at the end, which does not need all
// events.
func (f *File) StateOnly() error { return f.Last(^uint64(0)) }

// EndNs returns when recording ended, by CLOCK_MONOTONIC; 0 if that is not known.
func (f *File) EndNs() uint64 {
	end, _ := f.End()
	return end.TimeNs
}

// noEnd returns a note if a recording has no end mark after it was read to its end; "" if it has
// one.
func (f *File) noEnd() string {
	if _, ok := f.End(); ok {
		return ""
	}
	return f.Name + " has no end: it is still being written, or its writer was killed, or its disk was full"
}

// Stacks returns the counts of recorded call stacks; nil if not known.
func (f *File) Stacks() *memory.Stacks {
	end, ok := f.End()
	if !ok || !end.HasStacks {
		return nil
	}
	return &memory.Stacks{
		Taken: end.Taken, Python: end.Python,
		Incomplete: end.Incomplete, IncompletePython: end.IncompletePython,
	}
}

// Next reads the next event; io.EOF after the last one.
func (f *File) Next(e *event.Event) error {
	err := f.FileReader.Next(e)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var cut *recording.TruncatedError
	var damaged *recording.DamagedError
	switch {
	case errors.As(err, &cut):
		return &recording.TruncatedError{Name: f.Name, Offset: cut.Offset}
	case errors.As(err, &damaged):
		return &recording.DamagedError{Name: f.Name, Offset: damaged.Offset, Cause: damaged.Cause}
	}
	return err
}

// A batch is events that were read together.
type batch struct {
	events [256]event.Event
	n      int
	offset int64 // of the file, after them
	err    error // after them
}

// read fills a batch with at most n events.
func (f *File) read(b *batch, n int) {
	for b.n = 0; b.n < n && b.err == nil; {
		if b.err = f.Next(&b.events[b.n]); b.err == nil {
			b.n++
		}
	}
	b.offset = f.Offset()
}

// inTurn yields events one by one: reading the next one of a pipe may block for long.
func (f *File) inTurn(yield func(*batch) bool) {
	for one := new(batch); one.err == nil; {
		if f.read(one, 1); !yield(one) {
			return
		}
	}
}

// ahead yields events of a file, while another goroutine reads the next ones.
func (f *File) ahead(yield func(*batch) bool) {
	empty, full := make(chan *batch, 2), make(chan *batch, 2)
	empty <- new(batch)
	empty <- new(batch)
	go func() {
		defer close(full)
		for b := range empty {
			f.read(b, len(b.events))
			if full <- b; b.err != nil {
				return
			}
		}
	}()
	defer func() {
		close(empty)
		for range full { // until nothing reads the file any more
		}
	}()
	for b := range full {
		if !yield(b) {
			return
		}
		empty <- b
	}
}

// Play calls handle with the events until their end, or until damage, and counts them. An event is valid until
// the next one. It ends without an error when ctx is done. Another goroutine reads the events of a file ahead.
func (f *File) Play(ctx context.Context, handle func(*event.Event)) (n int, err error) {
	var shown Progress
	if f.Progress != nil {
		shown = f.Progress(f.Size())
		defer shown.End()
	}
	batches := f.ahead
	if f.Size() == 0 {
		batches = f.inTurn
		stop := context.AfterFunc(ctx, func() { _ = f.Close() })
		defer stop()
	}
	for b := range batches {
		for i := range b.events[:b.n] {
			if ctx.Err() != nil {
				return n, nil
			}
			e := &b.events[i]
			handle(e)
			if e.IsInvalid() { // what is shown without it would be wrong
				return n, fmt.Errorf("%s has a checkpoint that cannot be read: it is damaged, or another version of ttmem made it", f.Name)
			}
			n++
		}
		if shown != nil {
			shown.Show(b.offset)
		}
		switch {
		case ctx.Err() != nil, errors.Is(b.err, io.EOF):
			return n, nil
		case b.err != nil && n == 0:
			return 0, withoutEvents(b.err, f.Name, "first block")
		case b.err != nil:
			return n, b.err
		}
	}
	return n, nil
}

// A missingError means that there is no file with that name.
type missingError string

func (e missingError) Error() string { return "there is no such file: " + string(e) }

// Unwrap returns fs.ErrNotExist.
func (e missingError) Unwrap() error { return fs.ErrNotExist }

// A cutError means that a file ends too early, which is not damage.
type cutError string

func (e cutError) Error() string { return string(e) }

// Unwrap returns io.ErrUnexpectedEOF.
func (e cutError) Unwrap() error { return io.ErrUnexpectedEOF }

// withoutEvents returns an error of reading a file before its first event. Such an error must not
// say that earlier events were read.
func withoutEvents(err error, name, part string) error {
	var damaged *recording.DamagedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutError(fmt.Sprintf("%s is cut short in its %s: nothing in it can be read; record again", name, part))
	case errors.As(err, &damaged):
		return fmt.Errorf("%s is damaged in its %s (%s): nothing in it can be read; record again", name, part, damaged.Cause)
	}
	return err
}

// isOfMemory reports whether an event shows that memory was used, or that more was known before.
func isOfMemory(k event.Kind) bool {
	switch k {
	case event.ProcessStart, event.ProcessExit, event.DeviceOpen, event.DeviceClose, event.Lost, event.Mark:
		return false
	}
	return true
}

// withoutMemory returns the error of a file without its end that has no allocation: it must not say
// that nothing was allocated. damage is nil if the file ends between two blocks.
func (f *File) withoutMemory(damage error) error {
	var cut *recording.TruncatedError
	if errors.As(damage, &cut) {
		return cutError(fmt.Sprintf("%s is cut short at byte %d, before its first allocation: record again", f.Name, cut.Offset))
	}
	return cutError(f.noEnd() + "; it has no allocation so far")
}

// AddOwners adds the owners that were found later to a state: of the buffers that are live in it.
func (f *File) AddOwners(s *aggregate.State) {
	_ = f.Owners(s.Now(), s.ApplyLater) // reading the events reports damage
}

// hasBetween reports whether there is a checkpoint between two times.
func (f *File) hasBetween(after, before uint64) bool { return f.Before(before) > after }
