package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/place"
)

// Existing selects what happens to an existing file. An empty one is always used.
type Existing uint8

// What happens to an existing file.
const (
	// RefuseExisting makes Create fail.
	RefuseExisting Existing = iota
	// RotateExisting renames a recording to FILE.1, as if this one followed it. Create fails
	// for any other file.
	RotateExisting
)

// FileOptions configure a recording in files. The zero value is one file without a limit.
type FileOptions struct {
	Options
	// MaxBytes is the length at which another file follows; 0: no limit. A file is longer if
	// a single block is, or if its checkpoint would be more than half of it.
	MaxBytes int64
	// Keep is the number of files to keep, with the current one; 0: all.
	Keep int
	// Checkpoint freezes the state after all events that were added so far. Flush calls it.
	// The function that it returns makes the Checkpoint event; another goroutine calls it
	// later, while events are added. Without Checkpoint, files have no checkpoints, and a
	// file can only be understood with those before it.
	Checkpoint func() func() *event.Event
	// CheckpointEvents is the minimum number of events between two checkpoints of a file; 0: a
	// number that makes them cheap.
	CheckpointEvents int
	// Existing selects what happens to an existing file.
	Existing Existing
	// Private makes the files readable for their owner only, because they have command lines
	// and paths. Otherwise the umask decides.
	Private bool
}

// A File is a recording on disk: the current file, with the recording's name, and the earlier
// ones FILE.1 (the newest), FILE.2 and so on. It is not safe for concurrent use.
type File struct {
	*segment
	path   string
	o      FileOptions
	header Header
	parts  int // earlier files that this File has written
	err    error
	closed bool
	// missed is the number of events that came while err was set or were lost with the error,
	// and latest the highest time of an event.
	missed, latest uint64
	// making delivers the checkpoint that is being made; nil: none is.
	making chan *section
}

// A segment is one file of a recording.
type segment struct {
	f *os.File
	w *Writer
	// begun is the length of its header and first checkpoint.
	begun int64
	// added is the number of events that it was given.
	added uint64
	// since is the number of events since its last checkpoint, checked the offset at which that
	// was begun, and checkpointBytes its length.
	since                    uint64
	checked, checkpointBytes int64
	// stream: it is not a regular file, such as a pipe.
	stream bool
}

// Create begins a recording in a file. o.Existing selects what happens to an existing file.
func Create(path string, o FileOptions) (*File, error) {
	f := &File{path: path, o: o, header: o.header()}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.segment, err = f.begin(path, os.O_EXCL, nil)
	case err != nil:
		err = cause(err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory; name a file in it", path)
	case !info.Mode().IsRegular():
		if o.MaxBytes != 0 {
			return nil, fmt.Errorf("%s is not a file: its size cannot be limited; name a file", path)
		}
		f.segment, err = f.begin(path, 0, nil)
	case info.Size() == 0:
		f.segment, err = f.begin(path, 0, nil)
	case o.Existing != RotateExisting:
		return nil, fmt.Errorf("%s exists; remove it or name another", path)
	case !IsRecording(path):
		return nil, fmt.Errorf("%s exists and is not a ttmem recording; remove it or name another", path)
	default:
		err = f.replaceExisting()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name a file that can be written", path, err)
	}
	return f, nil
}

// errInUse means that another process writes the recording.
var errInUse = errors.New("another ttmem is writing it")

// begin begins a file of the recording, with a checkpoint of the events before or nil. After
// an error there is no new file.
func (f *File) begin(path string, flags int, of func() *event.Event) (*segment, error) {
	mode := os.FileMode(0o644)
	if f.o.Private {
		mode = 0o600
	}
	out, err := place.Create(path, flags, mode)
	if err != nil {
		return nil, cause(err)
	}
	s := &segment{f: out}
	discard := func(err error) (*segment, error) {
		out.Close()
		if flags&os.O_EXCL != 0 {
			os.Remove(path)
		}
		return nil, cause(err)
	}
	if info, err := out.Stat(); err != nil || !info.Mode().IsRegular() {
		s.stream = true
	} else if err := lock(out); err != nil {
		return discard(err)
	} else if err := f.private(out, info); err != nil {
		return discard(err)
	}
	if s.w, err = NewWriter(out, Options{Header: &f.header}); err != nil {
		return discard(err)
	}
	if of != nil {
		if err := s.w.checkpoint(of(), 0); err != nil {
			return discard(err)
		}
	}
	s.begun = s.w.Size()
	s.checked, s.checkpointBytes = s.begun, s.begun
	return s, nil
}

// errNotOurs means that the owner of the file could read it.
var errNotOurs = errors.New("it belongs to another user")

// private makes an existing file readable for its owner only.
func (f *File) private(out *os.File, info fs.FileInfo) error {
	if !f.o.Private {
		return nil
	}
	if !place.Ours(info) {
		return errNotOurs
	}
	return out.Chmod(0o600)
}

// lock locks the file against other writers while it is open, if its file system has locks.
func lock(f *os.File) error {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errInUse
	}
	return nil
}

// Add adds an event, as Writer.Add does. After an error of Flush it only counts the event.
func (f *File) Add(e *event.Event) {
	f.latest = max(f.latest, e.TimeNs)
	if f.err != nil {
		f.missed++
		return
	}
	f.added++
	f.since++
	f.w.Add(e)
}

// Full reports whether enough was added for a block, so that Flush should be called.
func (f *File) Full() bool { return f.err == nil && f.w.Full() }

// Flush writes the added events, which can be read from now on, even if this process is
// killed. If the file has become too long, another one follows. After an error the file ends
// with its last whole block, nothing more is written, and Flush returns the same error until
// Resume.
func (f *File) Flush() error {
	if f.err != nil {
		return f.err
	}
	if err := f.w.Flush(); err != nil {
		return f.fail(err, "")
	}
	if !f.full() {
		if err := f.checkpoint(); err != nil {
			return f.fail(err, "")
		}
		return nil
	}
	if err := f.rotate(); err != nil {
		return f.fail(err, "beginning the file that follows: ")
	}
	return nil
}

// endMark is the maximum length of an end mark, unless it has many causes.
const endMark = 512

// full reports whether the current file may have no room for the next block.
func (f *File) full() bool {
	return f.o.MaxBytes > 0 && f.w.Size()+int64(f.w.largest)+endMark > f.o.MaxBytes &&
		f.w.Size() >= 2*f.begun
}

// fail ends the recording after an error.
func (f *File) fail(err error, doing string) error {
	if !f.stream {
		// a part of a block
		_ = f.f.Truncate(f.w.Size())
	}
	f.f.Close()
	f.missed += f.added - f.w.written
	f.setError(err, doing)
	return f.err
}

func (f *File) setError(err error, doing string) {
	if err = cause(err); diskFull(err) {
		err = errNoSpace
	}
	f.err = fmt.Errorf("%s: %s%w; what was written up to now is intact", f.path, doing, err)
}

// Close ends the recording and closes its file.
func (f *File) Close(end End) error {
	if f.err != nil {
		return f.err
	}
	err := f.w.Flush()
	if err == nil {
		err = f.Settle()
	}
	if err == nil {
		err = f.w.Close(end)
	}
	if err != nil {
		return f.fail(err, "")
	}
	f.err, f.closed = fmt.Errorf("%s: the recording is closed", f.path), true
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("%s: %w", f.path, cause(err))
	}
	return nil
}

// Size is the length of the current file, without events that are not flushed.
func (f *File) Size() int64 { return f.w.Size() }

// Paths are the files that this File has written and that still exist, oldest first.
func (f *File) Paths() []string {
	var paths []string
	for n := f.parts; n >= 0; n-- {
		paths = append(paths, numbered(f.path, n))
	}
	return paths
}
