package kernel

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
)

// A ProbedFile is a file that gets probes. It stays open while it has them: its lease ends when it
// is closed (see host.TakeLease), and its path may lie in another mount namespace, or be gone.
type ProbedFile struct {
	File   *os.File
	Info   os.FileInfo // of the content that was read
	Probes io.Closer   // nil: none, or none yet
	leased bool
	inode  host.InodeHandle
}

// Identify prepares Same.
func (f *ProbedFile) Identify() { f.inode = host.HandleOf(f.File) }

// Same reports whether probes in one file are in the other too: under another name, or in another
// container. Both have to be identified.
func (f *ProbedFile) Same(other *ProbedFile) bool {
	return os.SameFile(f.Info, other.Info) || host.SameInode(f.inode, other.inode, f.Info, other.Info)
}

// Protect makes writers wait until the probes are removed, and then calls read again if the file was written
// to since. unprotected says why they do not wait: unix.EAGAIN if the file is open for writing.
func (f *ProbedFile) Protect(read func() error) (unprotected, err error) {
	if unprotected := host.TakeLease(f.File); unprotected != nil {
		return unprotected, nil
	}
	f.leased = true
	before := f.Info
	if f.Info, err = f.File.Stat(); err == nil && !unchanged(before, f.Info) {
		err = read()
	}
	return nil, err
}

// Unprotected is a message about a file that gets probes without a lease.
func Unprotected(path string, err error) string {
	return fmt.Sprintf("%s: do not overwrite this file while it is traced: the programs that run it would crash (no lease: %v)", path, err)
}

// Place places a program at offsets of the file, each with the cookie at its index.
func (f *ProbedFile) Place(u Uprobes, program *ebpf.Program, offsets, cookies []uint64) (io.Closer, error) {
	return u.Place(f.descriptor(), program, offsets, cookies, 0)
}

// Overwritten reports whether a writer waits for the removal of the probes.
func (f *ProbedFile) Overwritten() bool {
	return f.Probes != nil && f.leased && host.LeaseBroken(f.File)
}

// Remove removes the probes, if there are any, and closes the file, so that writers go on.
func (f *ProbedFile) Remove() {
	if f.Probes != nil {
		f.Probes.Close()
		f.Probes = nil
	}
	if f.File != nil {
		host.EndLease(f.File)
		f.File.Close()
		f.File = nil
	}
}

func (f *ProbedFile) descriptor() string { return fmt.Sprintf("/proc/self/fd/%d", f.File.Fd()) }

// Name is the present path of the file, for messages.
func (f *ProbedFile) Name() string {
	path, err := os.Readlink(f.descriptor())
	if err != nil {
		return f.File.Name()
	}
	return path
}

// IsDeleted reports whether the file was deleted. It does not use the file system, which may not
// answer.
func (f *ProbedFile) IsDeleted() bool { return strings.HasSuffix(f.Name(), " (deleted)") }

// unchanged reports whether a file has the same content: a write, or the creation of another file
// with the same inode number, sets the change time.
func unchanged(before, now os.FileInfo) bool {
	changed := func(info os.FileInfo) syscall.Timespec { return info.Sys().(*syscall.Stat_t).Ctim }
	return changed(before) == changed(now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}
