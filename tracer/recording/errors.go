package recording

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNotRecording says that something else than a recording was given to be
// read.
var ErrNotRecording = errors.New("not a ttmem recording")

type notRecording string

func (e notRecording) Error() string        { return string(e) }
func (e notRecording) Is(target error) bool { return target == ErrNotRecording }

// A VersionError says that an older or a newer ttmem wrote the recording.
type VersionError struct {
	// Name is the file's.
	Name string
	// Format is the recording's.
	Format int
}

func (e *VersionError) Error() string {
	if e.Format < Format {
		return fmt.Sprintf("%s was made by an older ttmem (format %d): record it again", e.Name, e.Format)
	}
	return fmt.Sprintf("%s was made by a newer ttmem (format %d; this one reads %d): install a newer one", e.Name, e.Format, Format)
}

// A TruncatedError says that a recording ends within a block: its writer was
// killed, its disk was full or it was not copied as a whole. All events of the
// blocks before were read.
type TruncatedError struct {
	// Name is the file's.
	Name string
	// Offset is where the block begins that is not complete, in bytes.
	Offset int64
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%s is cut short at byte %d: what came before was read", e.Name, e.Offset)
}

// Unwrap is io.ErrUnexpectedEOF.
func (e *TruncatedError) Unwrap() error { return io.ErrUnexpectedEOF }

// A DamagedError says that a recording was changed after it was written. The
// events before Offset were read; how many are lost is not known.
type DamagedError struct {
	// Name is the file's.
	Name string
	// Offset is where the block begins that makes no sense, in bytes.
	Offset int64
	// Cause says what is wrong with it.
	Cause string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d (%s): what came before was read, what follows is lost",
		e.Name, e.Offset, e.Cause)
}

// cause is an error of the os package without the name of the file and of the
// system call, which the caller's text has or does not need.
func cause(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// errNoSpace says it without the system's words for a full disk and a full quota.
var errNoSpace = errors.New("no space left")

// diskFull reports whether there was no room for a write.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
