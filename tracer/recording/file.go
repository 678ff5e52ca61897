package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// FileOptions configure a recording in files. The zero value is one file without a limit.
type FileOptions struct {
	// Header is the header of the first file; nil: that of NewHeader.
	Header *Header
	// MaxBytes is the length at which the next file begins; 0: no limit. A file is longer if a
	// single block is, or if its checkpoint would take more than half of it.
	MaxBytes int64
	// Keep is the number of files to keep, including the current one; 0: all.
	Keep int
	// Checkpoint freezes the state after all added events. Flush calls it. It returns a function
	// that makes the Checkpoint event; another goroutine calls that function later, while events
	// are added. If Checkpoint is nil, files have no checkpoints, and a file needs all earlier
	// ones to be read.
	Checkpoint func() func() *event.Event
	// CheckpointEvents is the minimum number of events between two checkpoints of a file; 0: a
	// number that makes them cheap.
	CheckpointEvents int
	// Rotate renames an existing recording to FILE.1, as if the new one continued it; Replace replaces it.
	// Create fails for other files, and without these two for all that are not empty.
	Rotate, Replace bool
	// Private makes the files readable only for their owner, because they have command lines and
	// paths. Otherwise the umask decides.
	Private bool
}

// A File is a recording on disk: the current file, with the recording's name, and the earlier
// ones FILE.1 (the newest), FILE.2 and so on. It is not safe for concurrent use.
type File struct {
	*segment
	path   string // as the user named it
	at     *place.Place
	mode   fs.FileMode // of new files
	o      FileOptions
	header Header
	parts  int // earlier files written by this File
	err    error
	closed bool
	// missed is the number of events that were lost with err or came after it, and latest the
	// highest time of an event.
	missed, latest uint64
	// making delivers the checkpoint in preparation; nil if there is none.
	making chan *section
}

// A segment is one file of a recording.
type segment struct {
	f  *os.File
	at *place.Place
	w  *Writer
	// begun is the length of the file's header and first checkpoint.
	begun int64
	// added is the number of events added to the file.
	added uint64
	// since is the number of events since the latest checkpoint, checked the offset where that
	// began, and checkpointBytes its length.
	since                    uint64
	checked, checkpointBytes int64
	// flushed is the length after the latest Flush.
	flushed int64
	// stream is true if the file is not a regular one, but a pipe for example.
	stream bool
}

// Create begins a recording in a file.
func Create(path string, o FileOptions) (*File, error) {
	at, err := place.Find(path)
	if err != nil {
		return nil, notWritable(path, err)
	}
	f, err := createAt(at, path, o)
	if err != nil {
		at.Close()
	}
	return f, err
}

func notWritable(path string, err error) error {
	return fmt.Errorf("%s: %w; name a file that can be written", path, host.WithoutPath(err))
}

// createAt begins a recording in a file at a place, which has the given path in messages.
func createAt(at *place.Place, path string, o FileOptions) (*File, error) {
	f := &File{path: path, at: at, mode: 0o644, o: o, header: NewHeader()}
	if o.Header != nil {
		f.header = *o.Header
	}
	if o.Private {
		f.mode = 0o600
	}
	info, err := at.Stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.segment, err = f.begin(at, nil)
	case err != nil:
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory; name a file in it", path)
	case !info.Mode().IsRegular():
		if o.MaxBytes != 0 {
			return nil, fmt.Errorf("%s is not a file: its size cannot be limited; name a file", path)
		}
		f.segment, err = f.toStream()
	case info.Size() > 0 && !o.Rotate && !o.Replace:
		return nil, fmt.Errorf("%s exists; name another file, or --force replaces it", path)
	case info.Size() > 0 && !isRecordingAt(at):
		return nil, fmt.Errorf("%s exists and is not a ttmem recording; remove it or name another", path)
	default:
		err = f.replaceExisting()
	}
	if err != nil {
		return nil, notWritable(path, err)
	}
	return f, nil
}

// errInUse means that another process writes the recording.
var errInUse = errors.New("another ttmem is writing it")

// toStream begins a recording in an existing file that is not a regular one.
func (f *File) toStream() (*segment, error) {
	out, err := f.at.OpenExisting(f.path)
	if err != nil {
		return nil, err
	}
	s := &segment{f: out, at: f.at, stream: true}
	if err := f.head(s, nil); err != nil {
		out.Close()
		return nil, err
	}
	return s, nil
}

// begin makes a file of the recording. It starts with a checkpoint of the earlier events, unless of
// is nil. After an error there is no new file.
func (f *File) begin(at *place.Place, of func() *event.Event) (*segment, error) {
	out, err := at.Create(f.path, f.mode)
	if err != nil {
		return nil, host.WithoutPath(err)
	}
	s := &segment{f: out, at: at}
	if err = lock(out); err == nil {
		err = f.head(s, of)
	}
	if err != nil {
		s.drop()
		return nil, host.WithoutPath(err)
	}
	return s, nil
}

// head writes the beginning of a file.
func (f *File) head(s *segment, of func() *event.Event) (err error) {
	if s.w, err = NewWriter(s.f, f.header); err != nil {
		return err
	}
	if of != nil {
		if err := s.w.checkpoint(of(), 0); err != nil {
			return err
		}
	}
	s.begun = s.w.Size()
	s.checked, s.checkpointBytes, s.flushed = s.begun, s.begun, s.begun
	return nil
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

// Full reports whether Flush should be called: a block is due or, after one that Add wrote, a
// checkpoint or the next file.
func (f *File) Full() bool {
	switch {
	case f.err != nil:
		return false
	case f.w.Full():
		return true
	case f.w.Size() == f.flushed:
		return false
	}
	return f.full() || len(f.making) > 0 || f.making == nil && f.due()
}

// Flush writes the added events. From now on they can be read, even if this process is killed. If
// the file is too long, the next one begins. After an error the file ends with its last whole
// block, nothing more is written, and Flush returns the same error until Resume.
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
		f.flushed = f.w.Size()
		return nil
	}
	if err := f.rotate(); err != nil {
		return f.fail(err, "beginning the file that follows: ")
	}
	return nil
}

// endMark is the maximum length of an end mark with few causes.
const endMark = 512

// full reports whether the current file may have no room for the next block.
func (f *File) full() bool {
	return f.o.MaxBytes > 0 && f.w.Size()+int64(f.w.largest)+endMark > f.o.MaxBytes &&
		f.w.Size() >= 2*f.begun
}

// fail ends the recording after an error.
func (f *File) fail(err error, doing string) error {
	if !f.stream {
		// removes a partial block
		_ = f.f.Truncate(f.w.Size())
	}
	f.f.Close()
	f.missed += f.added - f.w.written
	f.setError(err, doing)
	return f.err
}

func (f *File) setError(err error, doing string) {
	if err = host.WithoutPath(err); diskFull(err) {
		err = errNoSpace
	}
	f.err = fmt.Errorf("%s: %s%w; everything written so far is intact", f.path, doing, err)
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
		return fmt.Errorf("%s: %w", f.path, host.WithoutPath(err))
	}
	return nil
}

// Remove removes the current file.
func (f *File) Remove() error { return f.at.Remove() }

// Size returns the length of the current file, without events that are not flushed.
func (f *File) Size() int64 { return f.w.Size() }

// Paths returns the files that this File has written and that still exist, oldest first.
func (f *File) Paths() []string {
	var paths []string
	for n := f.parts; n >= 0; n-- {
		paths = append(paths, numbered(f.path, n))
	}
	return paths
}
