package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// eventFile writes events to a file, one JSON object a line. What is in the file
// is complete lines at any time, also when the disk fills.
type eventFile struct {
	f *os.File
	// path is the name that the user gave.
	path string
	// whole is the same file where it gets its name at the end; nil where others may
	// read it while events happen.
	whole   *wholeFile
	pending []byte
	events  uint64
	// written is the length of the file up to its last complete line; -1 for
	// what has no length, such as a pipe.
	written int64
}

// createEventFile creates a file that can be read while events happen: where it is
// private, by nobody else.
func createEventFile(path string, private bool) (*eventFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--events %s: %w; name a file that can be written", path, pathless(err))
	}
	if err := emptyEventFile(f, private); err != nil {
		f.Close()
		return nil, fmt.Errorf("--events %s: %w; name another file", path, pathless(err))
	}
	return newEventFile(f, path), nil
}

// emptyEventFile removes what a file has, when nobody else can read it any more that is
// not to.
func emptyEventFile(f *os.File, private bool) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if private {
		if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() {
			return errors.New("it is another user's, who could read what all users do")
		}
		if err := f.Chmod(0o600); err != nil {
			return err
		}
	}
	return f.Truncate(0)
}

// createEventCopy creates a file for events that are recorded already. Until it is
// closed whatever had its name stays as it is.
func createEventCopy(path string) (*eventFile, error) {
	whole, err := createWhole("--events", path)
	if err != nil {
		return nil, err
	}
	e := newEventFile(whole.f, path)
	e.whole = whole
	return e, nil
}

func newEventFile(f *os.File, path string) *eventFile {
	e := &eventFile{f: f, path: path}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		e.written = -1
	}
	return e
}

func (f *eventFile) add(e *event.Event) {
	f.pending = e.AppendJSON(f.pending)
	f.pending = append(f.pending, '\n')
	f.events++
}

// full reports whether what was added is better written before more is.
func (f *eventFile) full() bool { return len(f.pending) >= 1<<20 }

// flush writes what was added. After an error nothing more is written; a file that
// has its name ends with the last event that found room.
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
	err = pathless(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = errors.New("no space left")
	}
	if f.whole != nil {
		f.whole.discard()
		return fmt.Errorf("--events %s: %w; nothing was written", f.path, err)
	}
	if f.written >= 0 {
		_ = f.f.Truncate(f.written + completeLines(f.pending[:n]))
	}
	f.f.Close()
	return fmt.Errorf("--events %s: %w; what was written up to now is intact", f.path, err)
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

// close ends the file and tells what it has.
func (f *eventFile) close() error {
	if err := f.flush(); err != nil {
		return err
	}
	var err error
	if f.whole != nil {
		err = f.whole.finish(nil)
	} else {
		err = f.f.Close()
	}
	if err != nil {
		return fmt.Errorf("--events %s: %w; write it to another disk", f.path, pathless(err))
	}
	if f.written >= 0 {
		warn(fmt.Sprintf("wrote %s to %s (%s)", page.Count(f.events, "event"), f.path, page.Bytes(uint64(f.written))))
	}
	return nil
}

// discard removes a file that was not closed and has not got its name yet. A nil
// eventFile has none.
func (f *eventFile) discard() {
	if f != nil && f.whole != nil {
		f.whole.discard()
	}
}
