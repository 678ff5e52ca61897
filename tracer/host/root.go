package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ttmem/tracer/place"
)

// Open opens a file for reading. It does not wait for the writer of a FIFO, or for the holder of
// a lease.
func Open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// OpenInRoot opens a regular file or a folder at a path as a process sees it. The kernel reported
// the path, such as that of a mapped file, so it has no symbolic links. It refuses links, because
// the process's user may have put one there since, to files that only root can read.
func OpenInRoot(pid int, path string) (*os.File, error) {
	return openBelow(ProcDir(pid)+"/root", pid, path, 0, false)
}

// OpenIfMapped opens the file at a path if it is the one that a process has mapped, which may have ended. The path is as that
// process saw it, so on this machine it may lead to another file. That one is not opened, as this alone may have effects.
func OpenIfMapped(path string, id FileID) (file *os.File, err error) {
	defer func() {
		if err != nil {
			err = &os.PathError{Op: "open", Path: path, Err: WithoutPath(err)}
		}
	}()
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	stat, err := statPlace(fd)
	if err != nil {
		return nil, err
	}
	if stat.Dev_major != id.Major || stat.Dev_minor != id.Minor || stat.Ino != id.Inode {
		if err := checkAnswers(stat, os.Getpid()); err != nil {
			return nil, err
		}
		var fs unix.Statfs_t
		err := unix.Fstatfs(fd, &fs)
		if err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC && fs.Type != unix.BTRFS_SUPER_MAGIC { // there, stat(2) shows another identity
			return nil, unix.ESTALE
		}
	}
	if file, err = reopen(fd, os.Getpid(), path); err != nil {
		return nil, err
	}
	id.Generation = 0 // FileIDOf does not have it
	if got, err := FileIDOf(file); err != nil || got != id {
		file.Close()
		return nil, unix.ESTALE
	}
	return file, nil
}

// OpenPublic opens a regular file or a folder of this machine at a path that another user may have
// chosen, such as the author of a recording. It follows symbolic links. So that nothing that only this
// user may read gets into what others see, every user must be able to read it, by this path. Files of
// an ordinary user, for whom ttmem runs, need not be.
func OpenPublic(path string) (*os.File, error) {
	return openBelow("/", os.Getpid(), path, maxLinks, true)
}

// maxLinks is the kernel's own limit for a path.
const maxLinks = 40

// openBelow opens a regular file or a folder at a path below root, for a process. Links, even
// absolute ones, stay below root. Each file system on the way is asked only if it will answer. public
// refuses what only some users may read, as OpenPublic says.
func openBelow(root string, pid int, path string, links int, public bool) (file *os.File, err error) {
	rest := path
	var places []int // root, and what lies on the way
	leave := func(n int) {
		for _, fd := range places[n:] {
			unix.Close(fd)
		}
		places = places[:n]
	}
	defer func() {
		leave(0)
		if err != nil {
			err = &os.PathError{Op: "open", Path: path, Err: WithoutPath(err)}
		}
	}()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	readable := true              // by every user, so far
	for answers := uint64(0); ; { // a mount
		places = append(places, fd)
		here := len(places) - 1
		stat, err := statPlace(fd)
		switch {
		case err != nil:
			return nil, err
		case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
			if links--; links < 0 {
				return nil, unix.ELOOP
			}
			target := make([]byte, unix.PathMax)
			n, err := unix.Readlinkat(fd, "", target)
			if err != nil {
				return nil, err
			}
			if leave(here); n > 0 && target[0] == '/' {
				leave(1)
			}
			rest = string(target[:n]) + "/" + rest
		case stat.Mnt_id != answers:
			if err := checkAnswers(stat, pid); err != nil {
				return nil, err
			}
			answers = stat.Mnt_id
		}
		var name string
		for name == "" || name == "." {
			if rest == "" {
				user := place.User()
				if public && !(readable && stat.Mode&0o004 != 0) && (user == 0 || int(stat.Uid) != user) {
					return nil, unix.EACCES
				}
				return reopen(places[len(places)-1], pid, path)
			}
			name, rest, _ = strings.Cut(rest, "/")
			if name == ".." {
				leave(max(1, len(places)-1))
				name = ""
			}
		}
		readable = readable && stat.Mode&0o001 != 0
		fd, err = openPlace(places[len(places)-1], name)
		if err != nil {
			return nil, err
		}
	}
}

// openPlace returns an O_PATH descriptor of a file in a folder, even if it is a link.
func openPlace(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // also mounts it, on demand
	if err == unix.ENOTDIR {
		fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// statPlace describes an O_PATH descriptor. It does not ask the file system.
func statPlace(fd int) (*unix.Statx_t, error) {
	var stat unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_MODE|unix.STATX_UID|unix.STATX_INO|unix.STATX_MNT_ID, &stat)
	return &stat, err
}

// reopen opens for reading the regular file or folder of an O_PATH descriptor, which is that of a
// path of a process, if its file system will answer.
func reopen(fd, pid int, path string) (*os.File, error) {
	stat, err := statPlace(fd)
	if err == nil {
		if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
			err = unix.EINVAL
		} else {
			err = checkAnswers(stat, pid)
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}
