package host

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A library that is overwritten in place keeps its inode, and with it the kernel's probes,
// which would then be written into the middle of other instructions and kill the processes
// that run them. A lease on the file makes the writer wait until the probes are gone; the
// lease holder gets a SIGIO. Files that are replaced, as pip and compilers do, are not
// affected.

// Leased reports whether a file could not be opened because another process holds a lease on
// it. The kernel takes the lease away after 45 s (/proc/sys/fs/lease-break-time).
func Leased(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }

// LeasedTries is how often a file with a lease is opened again. The last try is 51 s after the
// first.
const LeasedTries = 9

// LeasedPause is the pause before the next try to open a file, after a number of tries.
func LeasedPause(tries int) time.Duration { return 100 * time.Millisecond << (tries - 1) }

// TakeLease makes writers to a file wait; unix.EAGAIN means that it is open for writing.
func TakeLease(file *os.File) error {
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err
}

// LeaseBroken reports whether a writer waits for a leased file: while a lease is being
// broken, the kernel returns its future type.
func LeaseBroken(file *os.File) bool {
	lease, err := unix.FcntlInt(file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && lease == unix.F_UNLCK
}

// EndLease lets writers continue.
func EndLease(file *os.File) { _, _ = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK) }
