package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
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
	if err := next.rename(f.at); err != nil {
		next.drop()
		return err
	}
	f.f.Close() // again, after an error
	f.segment = next
	f.parts++
	if f.o.Keep > 0 {
		f.parts = min(f.parts, f.o.Keep-1)
	}
	return nil
}

// replaceExisting begins a recording and replaces the existing one, or an empty file. The same users
// may read it at most.
func (f *File) replaceExisting() error {
	old, err := f.at.OpenExisting(f.path)
	if err != nil {
		return host.WithoutPath(err)
	}
	defer old.Close()
	if err := lock(old); err != nil {
		return err
	}
	info, err := old.Stat()
	if err != nil {
		return host.WithoutPath(err)
	}
	f.mode &= info.Mode()
	next, err := f.follow(nil)
	if err != nil {
		return err
	}
	if info.Size() > 0 && !f.o.Replace {
		err = f.shift()
	}
	if err == nil {
		err = next.rename(f.at)
	}
	if err != nil {
		next.drop()
		return err
	}
	f.segment = next
	return nil
}

// numbered returns the place of the n-th file before the current one.
func (f *File) numbered(n int) *place.Place { return f.at.Beside(numbered(f.at.Name(), n)) }

// follow begins the next file under a temporary name.
func (f *File) follow(of func() *event.Event) (*segment, error) {
	at := f.at.Beside(f.at.Name() + ".new")
	// A killed process may have left the file.
	if err := f.removable(at); err != nil {
		return nil, err
	}
	if err := at.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.begin(at, of)
}

// rename gives the file another name.
func (s *segment) rename(to *place.Place) error {
	if err := s.at.Rename(to); err != nil {
		return err
	}
	s.at = to
	return nil
}

// drop removes an unused file.
func (s *segment) drop() {
	s.f.Close()
	_ = s.at.Remove()
}

// shift renames the current file to FILE.1, FILE.1 to FILE.2 and so on. If only one file is kept,
// the new file replaces the current one.
func (f *File) shift() error {
	if err := f.dropOldest(); err != nil {
		return err
	}
	if _, err := f.at.Stat(); errors.Is(err, fs.ErrNotExist) {
		return nil // somebody moved it
	}
	last := 1 // the first free name, or that of the dropped file
	for ; f.o.Keep == 0 || last < f.o.Keep-1; last++ {
		if _, err := f.numbered(last).Stat(); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if f.o.Keep == 1 {
		return nil
	}
	if err := f.removable(f.numbered(last)); err != nil {
		return err
	}
	for n := last; n > 0; n-- {
		if err := f.numbered(n - 1).Rename(f.numbered(n)); err != nil {
			return err
		}
	}
	return nil
}

// dropOldest removes files beyond the limit: an earlier recording may have kept more.
func (f *File) dropOldest() error {
	for n := f.o.Keep; n > 0; n++ {
		at := f.numbered(n)
		if _, err := at.Stat(); err != nil {
			return nil
		}
		if err := f.removable(at); err != nil {
			return err
		}
		if err := at.Remove(); err != nil {
			return err
		}
	}
	return nil
}

// removable returns an error for a file that a rotation must not drop.
func (f *File) removable(at *place.Place) error {
	info, err := at.Stat()
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 || isRecordingAt(at) {
		return nil
	}
	return fmt.Errorf("%s is in the way and is not a ttmem recording; move it away", filepath.Join(filepath.Dir(f.path), at.Name()))
}
