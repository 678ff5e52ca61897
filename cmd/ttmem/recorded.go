package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// recorded is a file of events.
type recorded struct {
	name string
	// part is what a file is made of: a block, or a line.
	part string
	// private is true where the file is for its owner and his group alone.
	private bool
	next    func(*event.Event) error
	// file is what the events are read from; nil for lines.
	file *recording.FileReader
	// last goes on at the last checkpoint before a time, and reports whether there is
	// one: for a state, where not all events are needed.
	last   func(ns uint64) (bool, error)
	stacks func() *aggregate.Stacks
	// created is when recording began, by the wall clock; zero where it is not known.
	created time.Time
	// began and over are when recording began and ended, 0 where it is not known.
	began uint64
	over  func() uint64
	// ended reports whether what was read ends as its writer meant it to.
	ended func() bool
	close func() error
	// done and size are how much of the file was read, and how much there is.
	done func() int64
	size int64
	// quiet leaves out to tell how far it is
	quiet bool
}

// openRecorded opens a recording, or a file of JSON lines; "-" is standard input.
func openRecorded(path string) (*recorded, error) {
	if path == "-" {
		if term.IsTerminal(os.Stdin) {
			return nil, errors.New("-: standard input is a terminal: name a recording, or give it one")
		}
		return openNamed("/dev/stdin", shownName(path))
	}
	return openNamed(path, path)
}

// shownName is what a file is called.
func shownName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// openNamed opens a file that is called name.
func openNamed(path, name string) (*recorded, error) {
	if f, err := openEventLines(path, name); f != nil || err != nil {
		return f, err
	}
	f, err := recording.Open(path)
	if err != nil {
		return nil, withoutEvents(err, name, "header")
	}
	f.Lines = nativeLines.of
	next := func(e *event.Event) error { return called(name, f.Next(e)) }
	return &recorded{
		name: name, part: "block", private: isPrivate(path),
		file: f, next: next, last: f.Last, close: f.Close, done: f.Offset, size: f.Size(),
		began: f.Header().MonotonicNs, created: f.Header().Created,
		over:  func() uint64 { end, _ := f.End(); return end.TimeNs },
		ended: func() bool { _, ok := f.End(); return ok },
		stacks: func() *aggregate.Stacks {
			end, ok := f.End()
			if !ok || !end.HasStacks {
				return nil
			}
			return &aggregate.Stacks{
				Taken: end.Taken, Python: end.Python,
				Incomplete: end.Incomplete, IncompletePython: end.IncompletePython,
			}
		},
	}, nil
}

// called is an error of reading a recording, with what the file is called.
func called(name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var cut *recording.TruncatedError
	var damaged *recording.DamagedError
	switch {
	case errors.As(err, &cut):
		return &recording.TruncatedError{Name: name, Offset: cut.Offset}
	case errors.As(err, &damaged):
		return &recording.DamagedError{Name: name, Offset: damaged.Offset, Cause: damaged.Cause}
	}
	return err
}

// readOnce is an error where a file can be read only once, as a pipe, by who has to read it
// again.
func readOnce(path string) error {
	of := path
	if path == "-" {
		of = "/dev/stdin"
	}
	if info, err := os.Stat(of); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file, and can be read only once, where this takes it twice: give a file", path)
	}
	return nil
}

// isPrivate reports whether a file is for some users only.
func isPrivate(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o004 == 0
}

// A cutError says that a file ends too early, which is no damage.
type cutError string

func (e cutError) Error() string { return string(e) }

// Unwrap is io.ErrUnexpectedEOF.
func (e cutError) Unwrap() error { return io.ErrUnexpectedEOF }

// withoutEvents is an error of reading a file before its first event: nothing came
// before, as the error may say otherwise.
func withoutEvents(err error, name, part string) error {
	var damaged *recording.DamagedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutError(fmt.Sprintf("%s is cut short in its %s: nothing in it can be read", name, part))
	case errors.As(err, &damaged):
		return fmt.Errorf("%s is damaged in its %s (%s): nothing in it can be read", name, part, damaged.Cause)
	}
	return err
}
