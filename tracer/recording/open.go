package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// A FileReader reads a recording in a file.
type FileReader struct {
	*Reader
	file  *os.File
	info  os.FileInfo
	first int64 // the offset of its first block
	size  int64
	// checkpoints are the checkpoints between the events of the file, and owners its blocks of Owners.
	// They are known if indexed is true.
	checkpoints []checkpoint
	owners      []ownerBlock
	indexed     bool
}

// Open opens a recording. A recording that is still being written can be read up to the last
// flush.
func Open(path string) (*FileReader, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no recording %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, host.WithoutPath(err))
	}
	r, err := open(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func open(f *os.File, path string) (*FileReader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, host.WithoutPath(err))
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory; name a recording in it", path)
	}
	r, err := newReader(f, path)
	if err != nil {
		return nil, err
	}
	return &FileReader{Reader: r, file: f, first: r.offset, info: info, size: info.Size()}, nil
}

// Size returns the length of the file when it was opened; 0 for a pipe, for example.
func (r *FileReader) Size() int64 { return r.size }

// Private reports whether not every user may read the file.
func (r *FileReader) Private() bool { return r.info.Mode().IsRegular() && r.info.Mode()&0o004 == 0 }

// Close closes the file. Frames of its stacks can still be looked up.
func (r *FileReader) Close() error { return r.file.Close() }

// IsRecording reports whether a file begins like a recording.
func IsRecording(path string) bool {
	// A pipe would lose the bytes that are read here, and block until somebody writes to it.
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return beginsLikeOne(f)
}

// isRecordingAt is IsRecording for the file at a place.
func isRecordingAt(at *place.Place) bool {
	f, err := at.Open(os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && beginsLikeOne(f)
}

func beginsLikeOne(f *os.File) bool {
	var b [len(magic)]byte
	_, err := io.ReadFull(f, b[:])
	return err == nil && string(b[:]) == magic
}
