// Package place is for the files that ttmem makes. Their folder may belong to another user, who
// must not lead root to another file: neither by a symbolic link, nor by renaming folders meanwhile.
// So a path is resolved once, and everything else happens in the open folder that it led to.
// It is not part of ttmem's Go library: it changes without notice.
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
	// loose is true if other users can rename what is in the folder, or a folder above.
	loose bool
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
	loose := false
	for links := 0; ; {
		loose = loose || isLoose(dir)
		p := &Place{dir: dir, name: cmp.Or(rest[0], "."), loose: loose}
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

// FindName resolves the path of a folder, and returns a place in it whose file is not followed if
// it is a link.
func FindName(path string) (*Place, error) {
	p, err := Find(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer p.Close()
	folder, err := p.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return In(folder, filepath.Base(path)), nil
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

// isLoose reports whether users other than root and the one of this process can rename what is in a
// folder.
func isLoose(dir *os.File) bool {
	const groupWrites, othersWrite = 0o020, 0o002
	info, err := dir.Stat()
	if err != nil || Owner(info) != 0 && !Ours(info) {
		return true
	}
	byOthers := info.Mode()&othersWrite != 0 || info.Mode()&groupWrites != 0 && info.Sys().(*syscall.Stat_t).Gid != 0
	return byOthers && info.Mode()&fs.ModeSticky == 0
}

// Temporary creates a temporary file, whose name root may use without leaving that to other users.
func Temporary(pattern string) (*os.File, error) {
	dir, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, err
	}
	p, err := Find(dir + "/.")
	if err != nil {
		return nil, fmt.Errorf("TMPDIR %s: %w", dir, err)
	}
	defer p.Close()
	if p.loose && os.Geteuid() == 0 {
		return nil, fmt.Errorf("TMPDIR %s: other users can rename its files or a folder above: give root another TMPDIR", dir)
	}
	return os.CreateTemp(filepath.Dir(p.String()+"/."), pattern)
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

// User returns the user for whom this process runs: the user behind sudo, if there is one.
func User() int {
	if uid, ok := userBehindSudo(); ok {
		return uid
	}
	return os.Geteuid()
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

// ErrNotOurs means that a file belongs to another user, who could read or replace what is written.
var ErrNotOurs = errors.New("it belongs to another user")

// check returns an error for a file of another user. Only root makes devices, and a magic link is a file
// that this process was given.
func (p *Place) check(info fs.FileInfo) error {
	if p.magic || info.Mode()&fs.ModeDevice != 0 || Ours(info) {
		return nil
	}
	return ErrNotOurs
}

// OpenExisting opens an existing file for writing. A regular one has to be replaced instead: it may be
// a hard link to any file, and others may have it open. path appears in errors of the file's methods.
func (p *Place) OpenExisting(path string) (*os.File, error) {
	info, err := p.Stat() // opening a FIFO waits for a reader
	if err == nil {
		err = p.check(info)
	}
	if err != nil {
		return nil, err
	}
	f, err := p.open(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = p.check(info) // it may be another file by now
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Create creates a file for the user behind sudo. path appears in errors of the file's methods.
func (p *Place) Create(path string, mode fs.FileMode) (*os.File, error) {
	return p.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
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

// In returns a place in an open folder.
func In(folder *os.File, name string) *Place { return &Place{dir: folder, name: name} }

// Beside returns a place in the same folder.
func (p *Place) Beside(name string) *Place { return In(p.dir, name) }

// Name returns the name of the place in its folder.
func (p *Place) Name() string { return p.name }

// Folder returns the open folder.
func (p *Place) Folder() *os.File { return p.dir }

// Path returns a path for system calls that take nothing else. It leads through the open folder,
// whatever has its name meanwhile.
func (p *Place) Path() string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), p.name) }

// Rename moves the file to another place.
func (p *Place) Rename(to *Place) error {
	return unix.Renameat(int(p.dir.Fd()), p.name, int(to.dir.Fd()), to.name)
}

// MakeFolder makes a folder at the place, for the user behind sudo, and opens it.
func (p *Place) MakeFolder(mode fs.FileMode) (*os.File, error) {
	if err := unix.Mkdirat(int(p.dir.Fd()), p.name, uint32(mode.Perm())); err != nil {
		return nil, &fs.PathError{Op: "mkdir", Path: p.name, Err: err}
	}
	f, err := p.OpenFolder()
	if err == nil {
		giveToUser(f)
	}
	return f, err
}

// OpenFolder opens a folder of this user, or of the user behind sudo.
func (p *Place) OpenFolder() (*os.File, error) {
	f, err := p.Open(unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !Ours(info) {
		f.Close()
		return nil, ErrNotOurs
	}
	return f, nil
}

// Remove removes the file.
func (p *Place) Remove() error { return unix.Unlinkat(int(p.dir.Fd()), p.name, 0) }

// RemoveFolder removes an empty folder.
func (p *Place) RemoveFolder() error {
	return unix.Unlinkat(int(p.dir.Fd()), p.name, unix.AT_REMOVEDIR)
}

// Close closes the open folder, also for other places in it.
func (p *Place) Close() error { return p.dir.Close() }
