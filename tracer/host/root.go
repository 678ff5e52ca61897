package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a file for reading. It does not wait for the writer of a FIFO, or for the holder of
// a lease.
func Open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// OpenInRoot opens a regular file or a folder at a path as a process sees it. The kernel reported
// the path, such as that of a mapped file, so it has no symbolic links. It refuses links, because
// the process's user may have put one there since, to files that only root can read.
func OpenInRoot(pid int, path string) (*os.File, error) {
	root, err := unix.Open(ProcDir(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, pid, path)
}

// reopen opens for reading the regular file or folder of an O_PATH descriptor, which is that of a
// path of a process, if its file system will answer.
func reopen(fd, pid int, path string) (*os.File, error) {
	var stat unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_MNT_ID, &stat)
	if kind := stat.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFREG && kind != unix.S_IFDIR {
		err = unix.EINVAL
	}
	if err == nil {
		err = checkAnswers(&stat, pid)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}
