package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// A library that is overwritten in place keeps its inode, and with it the kernel's probes,
// which would then be written into the middle of other instructions and kill the processes
// that run them. A lease on the file makes the writer wait until the probes are gone; the
// lease holder gets a SIGIO. Files that are replaced, as pip and compilers do, are not
// affected.

// TakeLease makes writers to a file wait; unix.EAGAIN means that it is open for writing.
func TakeLease(file *os.File) error {
	// else the signal is for this thread, and lost when the thread has ended
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETOWN, os.Getpid())
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
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
