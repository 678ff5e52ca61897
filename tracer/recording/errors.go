package recording

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// ErrNotRecording means that the file or stream is not a recording.
var ErrNotRecording = errors.New("not a ttmem recording")

type notRecording string

func (e notRecording) Error() string        { return string(e) }
func (e notRecording) Is(target error) bool { return target == ErrNotRecording }

// A VersionError means that an older or a newer ttmem wrote the recording.
type VersionError struct {
	// Name is the name of the file.
	Name string
	// Format is the format of the recording.
	Format int
}

func (e *VersionError) Error() string {
	if e.Format < Format {
		return fmt.Sprintf("%s was made by an older ttmem (format %d): record it again", e.Name, e.Format)
	}
	return fmt.Sprintf("%s was made by a newer ttmem (format %d; this one reads %d): install a newer one", e.Name, e.Format, Format)
}

// A TruncatedError means that a recording ends within a block: its writer was killed, its disk
// was full or it was copied in part. All events of earlier blocks were read.
type TruncatedError struct {
	// Name is the name of the file.
	Name string
	// Offset is the offset in bytes of the incomplete block.
	Offset int64
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%s is cut short at byte %d: earlier events were read", e.Name, e.Offset)
}

// Unwrap returns io.ErrUnexpectedEOF.
func (e *TruncatedError) Unwrap() error { return io.ErrUnexpectedEOF }

// A DamagedError means that a recording was changed after it was written. The events before
// Offset were read; the number of lost events is not known.
type DamagedError struct {
	// Name is the name of the file.
	Name string
	// Offset is the offset in bytes of the invalid block.
	Offset int64
	// Cause describes the damage.
	Cause string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d (%s): earlier events were read, later ones are lost",
		e.Name, e.Offset, e.Cause)
}

// errNoSpace replaces the system's messages for a full disk and a full quota.
var errNoSpace = errors.New("no space left")

// diskFull reports whether a write failed for lack of space.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
