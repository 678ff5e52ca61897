package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// A File is a recording, open for reading.
type File struct {
	Name string
	// Created is when recording began by the wall clock, and BeganNs the same moment by
	// CLOCK_MONOTONIC.
	Created time.Time
	BeganNs uint64

	recording *recording.FileReader
	// quiet suppresses progress.
	quiet bool
}

// Open opens a recording; "-" is standard input.
func Open(path string) (*File, error) {
	if path == "-" && term.IsTerminal(os.Stdin) {
		return nil, errors.New("-: standard input is a terminal: name a recording, or give it one")
	}
	return openNamed(realName(path), shownName(path))
}

// realName returns the path by which a file is opened.
func realName(path string) string {
	if path == "-" {
		return "/dev/stdin"
	}
	return path
}

// shownName returns the name of a file in messages.
func shownName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// openNamed opens a file with the given name in messages.
func openNamed(path, name string) (*File, error) {
	f, err := recording.Open(path)
	switch {
	case path == "":
		return nil, errors.New("the name of the file is empty: name a recording")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no such file: %s; `ttmem run -- COMMAND` makes a recording", path)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s: permission denied; only the user who recorded it, or root with sudo, can read it", path)
	case err != nil:
		return nil, withoutEvents(err, name, "header")
	}
	if f.Private() {
		output.Private.Store(true)
	}
	f.Lines = nativeLines.of
	return &File{Name: name, Created: f.Header().Created, BeganNs: f.Header().MonotonicNs, recording: f}, nil
}

// Clock relates the times of the file's events to the wall clock.
func (f *File) Clock() page.Clock { return page.NewClock(f.Created, f.BeganNs) }

// Close closes the file.
func (f *File) Close() error { return f.recording.Close() }

// StateOnly continues at the last checkpoint: for the state at the end, which does not need all
// events.
func (f *File) StateOnly() error { return f.before(^uint64(0)) }

// before continues at the last checkpoint before the time ns, if there is one.
func (f *File) before(ns uint64) error { return f.recording.Last(ns) }

// EndNs returns when recording ended, by CLOCK_MONOTONIC; 0 if that is not known.
func (f *File) EndNs() uint64 {
	end, _ := f.recording.End()
	return end.TimeNs
}

// noEnd returns a note if a recording has no end mark after it was read to its end; "" if it has
// one.
func (f *File) noEnd() string {
	if _, ok := f.recording.End(); ok {
		return ""
	}
	return f.Name + " has no end: it is still being written, or its writer was killed, or its disk was full"
}

// Stacks returns the counts of recorded call stacks; nil if not known.
func (f *File) Stacks() *memory.Stacks {
	end, ok := f.recording.End()
	if !ok || !end.HasStacks {
		return nil
	}
	return &memory.Stacks{
		Taken: end.Taken, Python: end.Python,
		Incomplete: end.Incomplete, IncompletePython: end.IncompletePython,
	}
}

// next reads the next event. Errors have the name for messages.
func (f *File) next(e *event.Event) error {
	err := f.recording.Next(e)
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

const (
	// progressEvents is the number of events between two updates of progress.
	progressEvents = 128
	// playGarbage is the value of GOGC while a file is read: most memory is short-lived, and
	// the live part is rarely marked then.
	playGarbage = 300
)

// Play calls handle with the events until their end, or until damage, and counts them.
func (f *File) Play(ctx context.Context, handle func(*event.Event)) (n int, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(playGarbage))
	p := term.NewProgress(f.recording.Size())
	defer p.End()
	if f.recording.Size() == 0 { // reading a pipe may block for long
		stop := context.AfterFunc(ctx, func() { _ = f.Close() })
		defer stop()
	}
	var e event.Event
	for ctx.Err() == nil {
		if n%progressEvents == 0 && !f.quiet {
			p.Show(f.recording.Offset())
		}
		err := f.next(&e)
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return n, nil
		case err != nil && n == 0:
			return 0, withoutEvents(err, f.Name, "first block")
		case err != nil:
			return n, err
		}
		handle(&e)
		if e.IsInvalid() { // what is shown without it would be wrong
			return n, fmt.Errorf("%s has a checkpoint that cannot be read: it is damaged, or another version of ttmem made it", f.Name)
		}
		n++
	}
	return n, nil
}

// ReadOnce returns an error if a file, such as a pipe, can be read only once: for commands that
// read it again.
func ReadOnce(path string) error {
	if info, err := os.Stat(realName(path)); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file: it can be read only once, and this command reads it twice; give a file", path)
	}
	return nil
}

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

// addOwners adds the owners that were found later to a state: of the buffers that are live in it.
func (f *File) addOwners(s *aggregate.State) {
	_ = f.recording.Owners(s.Now(), s.ApplyLater) // reading the events reports damage
}

// AddOwners adds the owners that a recording has later than a state: of the buffers that are live in
// it. A pipe cannot be read again.
func AddOwners(path string, s *aggregate.State) error {
	if ReadOnce(path) != nil {
		return nil
	}
	f, err := Open(path)
	if err == nil {
		f.addOwners(s)
		err = f.Close()
	}
	return err
}

// LossesAt returns the losses that make the figures of a file's processes doubtful at a moment before
// its end, up to which a state was brought. A loss is known only after it happened, so all of the file
// count. Without selected processes pids is empty.
func LossesAt(path string, pids []int, s *aggregate.State) (memory.AllLosses, error) {
	if ReadOnce(path) != nil {
		return s.Snapshot().Losses(false, pids), nil
	}
	end, _, err := (&Recording{Path: path, PIDs: pids, Quiet: true}).End()
	if err != nil {
		return memory.AllLosses{}, err
	}
	return end.Snapshot().Losses(false, pids), nil
}

// hasBetween reports whether there is a checkpoint between two times.
func (f *File) hasBetween(after, before uint64) bool {
	return f.recording.Before(before) > after
}
