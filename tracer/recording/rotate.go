package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A new file is completed under a temporary name. Then the older files are renamed, the oldest
// first, and the new one gets the recording's name. At any moment each block is in a file with
// one of the recording's names. Renaming a file over another one drops the latter.

// numbered returns the name of the n-th file before the current one, which is file 0.
func numbered(path string, n int) string {
	if n == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, n)
}

// rotate begins the next file.
func (f *File) rotate() error {
	was := f.header
	now := NewHeader()
	f.header.Created, f.header.MonotonicNs = now.Created, now.MonotonicNs
	f.header.Part++
	var of func() *event.Event
	if f.o.Checkpoint != nil {
		of = f.o.Checkpoint()
	}
	next, err := f.follow(of)
	if err != nil {
		f.header = was
		return err
	}
	if err := f.shift(); err != nil {
		next.drop()
		return err
	}
	// After an error it is already closed.
	if f.err == nil && f.w.Close(End{Continued: true}) != nil {
		_ = f.f.Truncate(f.w.Size()) // the file is complete even without an end mark
	}
	if err := os.Rename(next.f.Name(), f.path); err != nil {
		next.drop()
		return host.WithoutPath(err)
	}
	f.f.Close() // again, after an error
	f.segment = next
	f.parts++
	if f.o.Keep > 0 {
		f.parts = min(f.parts, f.o.Keep-1)
	}
	return nil
}

// replaceExisting begins a recording and replaces the existing one.
func (f *File) replaceExisting() error {
	old, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return host.WithoutPath(err)
	}
	defer old.Close()
	if err := lock(old); err != nil {
		return err
	}
	next, err := f.follow(nil)
	if err != nil {
		return err
	}
	if err = f.shift(); err == nil {
		if err = os.Rename(next.f.Name(), f.path); err == nil {
			f.segment = next
			return nil
		}
	}
	next.drop()
	return host.WithoutPath(err)
}

// follow begins the next file under a temporary name.
func (f *File) follow(of func() *event.Event) (*segment, error) {
	path := f.path + ".new"
	// A killed process may have left the file.
	if err := removable(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, host.WithoutPath(err)
	}
	return f.begin(path, os.O_EXCL, of)
}

// drop removes an unused file.
func (s *segment) drop() {
	s.f.Close()
	os.Remove(s.f.Name())
}

// shift renames the current file to FILE.1, FILE.1 to FILE.2 and so on. If only one file is kept,
// the new file replaces the current one.
func (f *File) shift() error {
	if err := f.dropOldest(); err != nil {
		return err
	}
	if _, err := os.Lstat(f.path); errors.Is(err, fs.ErrNotExist) {
		return nil // somebody moved it
	}
	last := 1 // the first free name, or that of the dropped file
	for ; f.o.Keep == 0 || last < f.o.Keep-1; last++ {
		if _, err := os.Lstat(numbered(f.path, last)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if f.o.Keep == 1 {
		return nil
	}
	if err := removable(numbered(f.path, last)); err != nil {
		return err
	}
	for n := last; n > 0; n-- {
		if err := os.Rename(numbered(f.path, n-1), numbered(f.path, n)); err != nil {
			return host.WithoutPath(err)
		}
	}
	return nil
}

// dropOldest removes files beyond the limit: an earlier recording may have kept more.
func (f *File) dropOldest() error {
	for n := f.o.Keep; n > 0; n++ {
		path := numbered(f.path, n)
		if _, err := os.Lstat(path); err != nil {
			return nil
		}
		if err := removable(path); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return host.WithoutPath(err)
		}
	}
	return nil
}

// removable returns an error for a file that a rotation must not drop.
func removable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 || IsRecording(path) {
		return nil
	}
	return fmt.Errorf("%s is in the way and is not a ttmem recording; move it away", path)
}
