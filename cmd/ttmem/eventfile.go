package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// eventFile writes events to a file, one JSON object a line. What is in the file
// is complete lines at any time, also when the disk fills.
type eventFile struct {
	f       *os.File
	pending []byte
	// written is the length of the file up to its last complete line; -1 for
	// what has no length, such as a pipe.
	written int64
}

func createEventFile(path string) (*eventFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		var perr *os.PathError
		if errors.As(err, &perr) {
			err = perr.Err
		}
		return nil, fmt.Errorf("--events %s: %w; name a file that can be written", path, err)
	}
	e := &eventFile{f: f}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		e.written = -1
	}
	return e, nil
}

func (f *eventFile) add(e *event.Event) {
	f.pending = e.AppendJSON(f.pending)
	f.pending = append(f.pending, '\n')
}

// full reports whether what was added is better written before more is.
func (f *eventFile) full() bool { return len(f.pending) >= 1<<20 }

// flush writes what was added. After an error the file ends with the last event
// that found room, and nothing more is written.
func (f *eventFile) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.f.Write(f.pending)
	if err == nil {
		if f.written >= 0 {
			f.written += int64(n)
		}
		f.pending = f.pending[:0]
		return nil
	}
	if f.written >= 0 {
		_ = f.f.Truncate(f.written + completeLines(f.pending[:n]))
	}
	name := f.f.Name()
	f.f.Close()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("--events %s: no space left; what was written up to now is intact", name)
	}
	return fmt.Errorf("--events %s: %w; what was written up to now is intact", name, errors.Unwrap(err))
}

// completeLines is the length of the complete lines at the start of b.
func completeLines(b []byte) int64 {
	for i := len(b); i > 0; i-- {
		if b[i-1] == '\n' {
			return int64(i)
		}
	}
	return 0
}

func (f *eventFile) close() error {
	if err := f.flush(); err != nil {
		return err
	}
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("--events %s: %w", f.f.Name(), err)
	}
	return nil
}
