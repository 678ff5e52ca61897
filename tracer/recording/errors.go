package recording

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// otherFormat returns the error for a recording that an older or a newer ttmem wrote.
func otherFormat(name string, format int) error {
	if format < Format {
		return fmt.Errorf("%s was made by an older ttmem (format %d): record it again", name, format)
	}
	return fmt.Errorf("%s was made by a newer ttmem (format %d; this one reads %d): install a newer one", name, format, Format)
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
