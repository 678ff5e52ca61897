// Package output writes the files that flags name: event files, and exports of profiles, which are
// either complete or absent.
package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// Events writes events to a file, one JSON object per line. The file always has complete lines,
// even if the disk fills.
type Events struct {
	f *os.File
	// path is the name given by the user
	path    string
	pending []byte
	line    []byte
	events  uint64
	// Supplement has the clock of the events and the users of processes.
	Supplement *page.Supplement
	// written is the length of the file up to its last complete line; -1 for a pipe
	written int64
}

// CreateEvents creates a file that can be read while events happen. Only the owner can read a
// private one.
func CreateEvents(path string, private bool) (*Events, error) {
	f, err := place.Create(path, 0, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--events %s: %w; name a file that can be written", path, host.WithoutPath(err))
	}
	if err := emptyEventFile(f, private); err != nil {
		f.Close()
		return nil, fmt.Errorf("--events %s: %w; name another file", path, host.WithoutPath(err))
	}
	return newEventFile(f, path), nil
}

// emptyEventFile truncates a file, after it makes a private one unreadable for others.
func emptyEventFile(f *os.File, private bool) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if private {
		if !place.Ours(info) {
			return errors.New("it belongs to another user, who could read the events of all users")
		}
		if err := f.Chmod(0o600); err != nil {
			return err
		}
	}
	return f.Truncate(0)
}

func newEventFile(f *os.File, path string) *Events {
	e := &Events{f: f, path: path, Supplement: page.NewSupplement(page.Clock{})}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		e.written = -1
	}
	return e
}

// Add adds an event.
func (f *Events) Add(e *event.Event) {
	if e.Kind == event.Checkpoint {
		return // it has no record: the file begins with later events
	}
	f.Supplement.Apply(e)
	f.line = e.AppendJSON(f.line[:0])
	// a stack has nothing to supplement, and is most of the line
	head, stack := f.line, []byte(nil)
	if n := bytes.Index(f.line, stackKey); n >= 0 {
		head, stack = f.line[:n], f.line[n:]
	}
	f.pending = append(f.Supplement.Append(f.pending, head), stack...)
	f.pending = append(f.pending, '\n')
	f.events++
}

// stackKey begins the stack of an event, which is the last field.
var stackKey = []byte(`,"stack":[`)

// Full reports whether Flush should be called before more is added.
func (f *Events) Full() bool { return len(f.pending) >= 1<<20 }

// Flush writes the added events. After an error nothing more is written, and the file ends with
// the last complete event.
func (f *Events) Flush() error {
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
	err = host.WithoutPath(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = errors.New("no space left")
	}
	if f.written >= 0 {
		_ = f.f.Truncate(f.written + int64(bytes.LastIndexByte(f.pending[:n], '\n')+1))
	}
	f.f.Close()
	return fmt.Errorf("--events %s: %w; everything written so far is intact", f.path, err)
}

// Close ends the file and reports its contents.
func (f *Events) Close() error {
	if err := f.Flush(); err != nil {
		return err
	}
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("--events %s: %w; write it to another disk", f.path, host.WithoutPath(err))
	}
	if f.written >= 0 {
		term.Warn(fmt.Sprintf("wrote %s to %s (%s)", page.Count(f.events, "event"), f.path, page.Bytes(uint64(f.written))))
	}
	return nil
}
