package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
)

// Existing says what becomes of a file that is there already. An empty one is
// used in any case.
type Existing uint8

// What may become of a file that is there already.
const (
	// RefuseExisting leaves it alone: Create fails.
	RefuseExisting Existing = iota
	// RotateExisting renames a recording to FILE.1, as if this one followed it.
	// What is no recording is left alone.
	RotateExisting
)

// FileOptions say how a recording is kept in files. The zero value is one file
// without a limit.
type FileOptions struct {
	Options
	// MaxBytes is how long a file gets before another one follows it; 0 is without
	// a limit. A file is longer where a block alone is, and where less than half of
	// it would be new after its checkpoint.
	MaxBytes int64
	// Keep is how many files there may be, with the current one; 0 is all.
	Keep int
	// Checkpoint is the state that a following file begins with: after all events
	// that were added when it is called, which Flush does. What it returns makes the
	// Checkpoint event; it is called later, by another goroutine, while events are
	// added. Without it, what was before can only be known from the files before, and
	// a long file has no checkpoints in it.
	Checkpoint func() func() *event.Event
	// CheckpointEvents is how many events there are between two checkpoints in a file
	// at least; 0 is so many that they cost little.
	CheckpointEvents int
	// Existing says what becomes of a file that is there already.
	Existing Existing
	// Private lets nobody read the files but their owner, where they are files:
	// command lines and paths are in them. Otherwise the umask decides.
	Private bool
}

// A File is a recording on disk: the file with the recording's name, which is the
// current one, and the ones before it, FILE.1 (the newest of them), FILE.2 and so
// on. Only one goroutine may use it at a time.
type File struct {
	*segment
	path   string
	o      FileOptions
	header Header
	parts  int // files before the current one, that this File has written
	err    error
	closed bool
	// missed is how many events came while err was set or were lost with what led to
	// it, and latest the highest time of an event.
	missed, latest uint64
	// making is a section that is being made; nil: none is.
	making chan *section
}

// A segment is one file of a recording.
type segment struct {
	f *os.File
	w *Writer
	// begun is how long its header and checkpoint are, without which it says nothing
	// new.
	begun int64
	// added is how many events it was given.
	added uint64
	// since is how many events came since its last checkpoint, checked where in the file
	// that was, and largest how many bytes it has.
	since            uint64
	checked, largest int64
	// stream marks what has no length, such as a pipe.
	stream bool
}

// Create begins a recording in a file. Where that exists and is not empty,
// o.Existing says what becomes of it.
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

// errInUse says that somebody writes a recording.
var errInUse = errors.New("another ttmem is writing it")

// begin begins a file of the recording, with a checkpoint of what was before or nil.
// On an error there is no file that was not there.
func (f *File) begin(path string, flags int, of func() *event.Event) (*segment, error) {
	mode := os.FileMode(0o644)
	if f.o.Private {
		mode = 0o600
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, mode)
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
	s.checked, s.largest = s.begun, s.begun
	return s, nil
}

// errNotOurs says that who owns the file could read it.
var errNotOurs = errors.New("it belongs to another user")

// private makes a file that was there before one that only its owner can read.
func (f *File) private(out *os.File, info fs.FileInfo) error {
	if !f.o.Private {
		return nil
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() {
		return errNotOurs
	}
	return out.Chmod(0o600)
}

// lock keeps other writers away from the file, for as long as it is open. Where
// the file system has no locks they are not kept away.
func lock(f *os.File) error {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errInUse
	}
	return nil
}

// Add adds an event, of which it keeps nothing but its stack's frames. After an
// error of Flush it does nothing but count what is missed.
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

// Full reports whether so much was added that it is better flushed before more
// is.
func (f *File) Full() bool { return f.err == nil && f.w.Full() }

// Flush writes what was added: from now on it can be read, whatever becomes of
// this process. Where the file has become too long another one follows. After an
// error the file ends with the last block that found room, and nothing more is
// written; Flush says the same again, until Resume.
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

// endMark is how many bytes an end mark has at most, unless there are many causes.
const endMark = 512

// full reports whether the next block may not find room in the current file.
func (f *File) full() bool {
	return f.o.MaxBytes > 0 && f.w.Size()+int64(f.w.largest)+endMark > f.o.MaxBytes &&
		f.w.Size() >= 2*f.begun
}

// fail ends the recording after an error, whose cause can be unwrapped.
func (f *File) fail(err error, doing string) error {
	if !f.stream {
		// what was written of a block that found no room
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

// Size is how many bytes the current file has, without what is not flushed.
func (f *File) Size() int64 { return f.w.Size() }

// Paths are the files that this File has written and that are still there, in the
// order of time: the current one is the last.
func (f *File) Paths() []string {
	var paths []string
	for n := f.parts; n > 0; n-- {
		paths = append(paths, numbered(f.path, n))
	}
	return append(paths, f.path)
}
