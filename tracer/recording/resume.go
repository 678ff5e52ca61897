package recording

import (
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// MissedCause is the cause of the Lost event for a gap in a recording.
const MissedCause = "could not be recorded"

// Resume continues after an error of Flush in a new file, which begins with a checkpoint and the
// number of missed events. If that is not possible yet, it returns the present obstacle. Without
// an earlier error, and after Close, it does nothing.
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

// Missed returns the number of events that were lost since the error of Flush.
func (f *File) Missed() uint64 { return f.missed }

// noSpace reports whether the file system certainly lacks the room for a header and a checkpoint
// like the last ones. Making a checkpoint only to fail would take long.
func (f *File) noSpace() bool {
	var s unix.Statfs_t
	if unix.Fstatfs(int(f.at.Folder().Fd()), &s) != nil {
		return false
	}
	return s.Bavail*uint64(s.Bsize) < uint64(f.begun)
}
