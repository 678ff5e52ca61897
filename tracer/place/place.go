// Package place opens files for writing. The folder of a file may belong to another user, who
// must not lead root to another file by a symbolic link, not even by a link made while the path
// is resolved.
package place

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Place is a name in an open folder; a file of that name need not exist.
type Place struct {
	dir  *os.File
	name string
	// magic is true if the name is a link to an open file, such as /dev/stdout.
	magic bool
}

// maxLinks is the kernel's limit of symbolic links in a path.
const maxLinks = 40

// Find resolves a path and its symbolic links. For root, links of other users are an error,
// except those of the user behind sudo.
func Find(path string) (*Place, error) {
	at, rest := ".", strings.Split(path, "/")
	if filepath.IsAbs(path) {
		at = "/"
	}
	dir, err := os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	for links := 0; ; {
		p := &Place{dir: dir, name: cmp.Or(rest[0], ".")}
		rest = rest[1:]
		next, err := p.Open(unix.O_PATH, 0)
		if len(rest) == 0 && errors.Is(err, fs.ErrNotExist) {
			return p, nil
		}
		if err != nil {
			dir.Close()
			return nil, err
		}
		to, err := p.link(next)
		switch {
		case err != nil:
		case to == "" && len(rest) == 0:
			next.Close()
			return p, nil
		case to == "":
			dir.Close()
			dir = next
			continue
		case links == maxLinks:
			err = unix.ELOOP
		case filepath.IsAbs(to):
			dir.Close()
			dir, err = os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		next.Close()
		if err != nil {
			dir.Close()
			return nil, err
		}
		links++
		rest = append(strings.Split(to, "/"), rest...)
	}
}

// link returns the target of a symbolic link; "" if the file is not a link or the link is magic.
func (p *Place) link(f *os.File) (to string, err error) {
	info, err := f.Stat()
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return "", err
	}
	if os.Geteuid() == 0 && !Ours(info) {
		return "", fmt.Errorf("the symbolic link %s belongs to user %d", p, Owner(info))
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", text)
	if err != nil {
		return "", err
	}
	var of unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &of); err != nil {
		return "", err
	}
	if of.Type == unix.PROC_SUPER_MAGIC {
		// The name of a pipe, or of a terminal in another mount namespace, is not a path.
		p.magic = true
		info, err := p.Stat()
		if p.magic = err == nil && !info.Mode().IsRegular() && !info.IsDir(); p.magic {
			return "", nil
		}
	}
	return string(text[:n]), nil
}

// Owner returns the user ID of a file's owner.
func Owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// String returns the path of the place, without symbolic links.
func (p *Place) String() string {
	dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p.dir.Fd()))
	if err != nil {
		return p.name
	}
	return filepath.Join(dir, p.name)
}

// Ours reports whether a file belongs to the user of this process, or to the user behind sudo.
func Ours(info fs.FileInfo) bool {
	behind, sudo := userBehindSudo()
	owner := Owner(info)
	return owner == os.Geteuid() || sudo && owner == behind
}

// userBehindSudo returns a user for whom this process runs as root.
func userBehindSudo() (uid int, ok bool) {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	return uid, err == nil && uid >= 0 && os.Geteuid() == 0
}

// giveToUser gives a file of root to the user behind sudo, if there is one. Where the file system
// cannot do that, the file stays root's.
func giveToUser(f *os.File) {
	uid, ok := userBehindSudo()
	if !ok {
		return
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil || gid < 0 {
		gid = -1
	}
	_ = f.Chown(uid, gid)
}

// Capabilities returns those with which root writes a file at any time: the file, and others beside
// it, are made, renamed and removed. There are none if the folder is root's, as the files are then.
func Capabilities(path string) []int {
	if uid, ok := userBehindSudo(); !ok || uid == 0 {
		p, err := Find(path)
		if err == nil {
			defer p.dir.Close()
			if p.isRoots() {
				return nil
			}
		}
	}
	return []int{unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER}
}

// isRoots reports whether the folder, and the file if there is one, are root's and writable.
func (p *Place) isRoots() bool {
	const ownerWrites = 0o200
	dir, err := p.dir.Stat()
	if err != nil || Owner(dir) != 0 || dir.Mode()&ownerWrites == 0 {
		return false
	}
	file, err := p.Stat()
	return errors.Is(err, fs.ErrNotExist) || err == nil && Owner(file) == 0 && file.Mode()&ownerWrites != 0
}

// Open opens the file of the place.
func (p *Place) Open(flags int, mode fs.FileMode) (*os.File, error) {
	return p.open(p.name, flags, mode)
}

// open opens the file; path appears in errors of the file's methods.
func (p *Place) open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	if !p.magic {
		flags |= unix.O_NOFOLLOW
	}
	for {
		fd, err := unix.Openat(int(p.dir.Fd()), p.name, flags|unix.O_CLOEXEC, uint32(mode.Perm()))
		if err == nil {
			f := os.NewFile(uintptr(fd), path)
			if flags&unix.O_EXCL != 0 { // the file is new
				giveToUser(f)
			}
			return f, nil
		}
		if err != unix.EINTR {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Create opens a file for writing. It creates a missing file for the user behind sudo. Root does
// not write to a file with several hard links, because a user can link any file.
func Create(path string, flags int, mode fs.FileMode) (*os.File, error) {
	p, err := Find(path)
	if err != nil {
		return nil, err
	}
	defer p.dir.Close()
	f, err := p.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|flags, mode)
	if errors.Is(err, fs.ErrExist) && flags&os.O_EXCL == 0 {
		f, err = p.open(path, os.O_WRONLY|os.O_CREATE|flags, mode)
	}
	if err != nil || os.Geteuid() != 0 {
		return f, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink > 1 {
		err = errors.New("it is a hard link, and may be any file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Stat describes the file of the place.
func (p *Place) Stat() (fs.FileInfo, error) {
	f, err := p.Open(unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// Beside returns a place in the same folder.
func (p *Place) Beside(name string) *Place { return &Place{dir: p.dir, name: name} }

// Name returns the name of the place in its folder.
func (p *Place) Name() string { return p.name }

// Rename moves the file to another place.
func (p *Place) Rename(to *Place) error {
	return unix.Renameat(int(p.dir.Fd()), p.name, int(to.dir.Fd()), to.name)
}

// MakeFolder makes a folder at the place, for the user behind sudo.
func (p *Place) MakeFolder(mode fs.FileMode) error {
	if err := unix.Mkdirat(int(p.dir.Fd()), p.name, uint32(mode.Perm())); err != nil {
		return &fs.PathError{Op: "mkdir", Path: p.name, Err: err}
	}
	f, err := p.Open(unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	giveToUser(f)
	return f.Close()
}

// Remove removes the file.
func (p *Place) Remove() error { return unix.Unlinkat(int(p.dir.Fd()), p.name, 0) }
