package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A FileReader reads a recording in a file.
type FileReader struct {
	*Reader
	file  *os.File
	first int64 // the offset of its first block
	size  int64
	// checkpoints are those between the events of the file; nil until somebody looks for one.
	checkpoints []checkpoint
}

// Open opens a recording. One that is still being written can be read up to what
// was flushed last.
func Open(path string) (*FileReader, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no recording %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, cause(err))
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
		return nil, fmt.Errorf("opening %s: %w", path, cause(err))
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory; name a recording in it", path)
	}
	r, err := newReader(f, path)
	if err != nil {
		return nil, err
	}
	return &FileReader{Reader: r, file: f, first: r.offset, size: info.Size()}, nil
}

// Size is how long the file was when it was opened; 0 for what has no length,
// such as a pipe.
func (r *FileReader) Size() int64 { return r.size }

// Close closes the file. Stacks of its events can still be asked for frames.
func (r *FileReader) Close() error { return r.file.Close() }

// IsRecording reports whether a file begins as recordings do.
func IsRecording(path string) bool {
	// A pipe would lose what is read here, and block where nobody writes.
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [len(magic)]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && string(b[:]) == magic
}
