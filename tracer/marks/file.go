package marks

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/host"
)

// A markedFile is a file that was mapped. It stays open while it has probes, because its
// lease ends when it is closed; see host.TakeLease.
type markedFile struct {
	file   *os.File // nil: it has no probes
	info   os.FileInfo
	inode  host.InodeHandle
	probes io.Closer // nil: none, or none yet
	calls  string    // the marked functions, for messages
	// refused is true if the file was open for writing
	refused bool
	// same is the same file in another container, which has the probes
	same *markedFile
}

// fileKey identifies a file. The number of a deleted inode may be reused: unchanged detects
// that.
type fileKey struct{ device, inode uint64 }

func keyOf(info os.FileInfo) fileKey {
	s := statOf(info)
	return fileKey{s.Dev, s.Ino}
}

// unchanged reports whether a file is the same and has the same content: a write, or the
// creation of another file, sets the change time.
func unchanged(before, now os.FileInfo) bool {
	return statOf(before).Ctim == statOf(now).Ctim && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}

func statOf(info os.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// place places the probes of a file with functions to mark. It closes a file that gets
// none.
func (c *Placer) place(f *markedFile) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.probes == nil && f.file != nil {
			f.file.Close()
			f.file = nil
		}
	}()
	offsets, numbers, err := c.read(f)
	if err != nil || len(offsets) == 0 {
		return // no library, or without a function to mark
	}
	if c.hasProbes(f) || !c.lease(f) {
		return
	}
	// Writers wait from here on. If something was written meanwhile, the file is read
	// again.
	info, err := f.file.Stat()
	if err != nil {
		return
	}
	if !unchanged(info, f.info) {
		c.mu.Lock()
		f.info = info
		c.mu.Unlock()
		if offsets, numbers, err = c.read(f); err != nil || len(offsets) == 0 {
			return
		}
	}
	l, err := c.uprobes.Place(fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()), c.program, offsets, numbers, 0)
	if err != nil {
		c.warn(fmt.Sprintf("--mark-at: calls of %s in %s are not seen: %v", f.calls, pathOf(f.file), err))
		return
	}
	c.mu.Lock()
	f.probes = l
	c.mu.Unlock()
	c.Withdraw() // a writer may have arrived before the probes were placed
}

// hasProbes reports whether another file carries this one's probes.
func (c *Placer) hasProbes(f *markedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.inode = host.HandleOf(f.file)
	for _, other := range c.files {
		if other.probes != nil && host.SameInode(other.inode, f.inode, other.info, f.info) {
			f.same = other
			return true
		}
	}
	return false
}

// read finds the functions to mark in a file.
func (c *Placer) read(f *markedFile) (offsets, numbers []uint64, err error) {
	e, err := symbolize.New(f.file, f.info.Size())
	if err != nil {
		return nil, nil, err
	}
	defer e.Close()
	offsets, numbers = functionsNamed(e, c.names)
	f.calls = c.calls(numbers)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range numbers {
		c.found[n] = true
	}
	return offsets, numbers, nil
}

// lease makes writers wait until the probes are gone, and reports whether they will.
// Without a lease no probes are placed: the target comes first.
func (c *Placer) lease(f *markedFile) bool {
	err := host.TakeLease(f.file)
	again := f.refused
	f.refused = errors.Is(err, unix.EAGAIN)
	if err == nil {
		return true
	}
	why := fmt.Sprintf("it cannot be protected against overwriting (no lease: %v)", err)
	if f.refused {
		why = "it is open for writing"
	}
	if !again {
		c.warn(fmt.Sprintf("--mark-at: calls of %s in %s are not marked: %s", f.calls, pathOf(f.file), why))
	}
	return false
}

// Withdraw removes the probes of the files that writers wait for, and lets the writers go
// on.
func (c *Placer) Withdraw() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		if f.probes == nil || !host.LeaseBroken(f.file) {
			continue
		}
		f.probes.Close()
		f.probes = nil
		// processes that map it from now on see other content
		where := "processes that run it"
		maps.DeleteFunc(c.files, func(_ fileKey, other *markedFile) bool {
			if other.same == f {
				where = "processes that run it, here and in other containers,"
			}
			return other == f || other.same == f
		})
		c.warn(fmt.Sprintf("%s is being overwritten: calls of %s in %s are no longer marked", pathOf(f.file), f.calls, where))
		host.EndLease(f.file)
		f.file.Close()
		f.file = nil
	}
}

// calls lists the names with these numbers, for messages.
func (c *Placer) calls(numbers []uint64) string {
	var list []string
	for i, name := range c.names {
		if slices.Contains(numbers, uint64(i)) {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}

// pathOf is the path of an open file, for messages.
func pathOf(file *os.File) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return file.Name()
	}
	return path
}
