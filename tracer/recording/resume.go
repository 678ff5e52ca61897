package recording

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// MissedCause is the cause of the Lost event that tells of a gap in a recording.
const MissedCause = "could not be recorded"

// Resume goes on after an error of Flush, in a file that follows: it begins with the
// checkpoint, and then says how many events are in no file. Where that is not
// possible yet the error is what stands in the way now. Without an error before,
// and after Close, there is nothing to resume.
func (f *File) Resume() error {
	if f.err == nil || f.closed || f.stream {
		return f.err
	}
	if f.noSpace() {
		return f.err
	}
	if err := f.rotate(); err != nil {
		f.setError(err, "beginning the file that follows: ")
		return f.err
	}
	f.err = nil
	if f.missed > 0 {
		f.Add(&event.Event{TimeNs: f.latest, Kind: event.Lost, Count: f.missed, Cause: MissedCause})
		f.missed = 0
	}
	return f.Flush()
}

// Missed is how many events are in no file since the error of Flush.
func (f *File) Missed() uint64 { return f.missed }

// noSpace reports whether there is certainly no room for a file as long as the last
// one was at its beginning: to make a checkpoint takes long.
func (f *File) noSpace() bool {
	var s unix.Statfs_t
	if unix.Statfs(filepath.Dir(f.path), &s) != nil {
		return false
	}
	return s.Bavail*uint64(s.Bsize) < uint64(f.begun)
}
