package marks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/kernel"
)

// A markedFile is a file that was mapped. Its File is nil if it has no probes.
type markedFile struct {
	kernel.ProbedFile
	calls string // the marked functions, for messages
	// refused is true if the file was open for writing
	refused bool
	// same is the same file in another container, which has the probes
	same *markedFile
}

// fileKey identifies a file. The number of a deleted inode may be reused: kernel.Unchanged detects
// that.
type fileKey struct{ device, inode uint64 }

func keyOf(info os.FileInfo) fileKey {
	s := info.Sys().(*syscall.Stat_t)
	return fileKey{s.Dev, s.Ino}
}

// place places the probes of a file with functions to mark. It closes a file that gets
// none.
func (c *Placer) place(f *markedFile) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.Probes == nil {
			f.Remove()
		}
	}()
	offsets, numbers, err := c.read(f)
	if err != nil || len(offsets) == 0 {
		return // no library, or without a function to mark
	}
	if c.hasProbes(f) {
		return
	}
	// Writers wait from here on, or no probes are placed: the target comes first. If something was
	// written meanwhile, the file is read again.
	info, err := f.Protect()
	if c.refuse(f, err); err != nil {
		return
	}
	if !kernel.Unchanged(f.Info, info) {
		c.mu.Lock()
		f.Info = info
		c.mu.Unlock()
		if offsets, numbers, err = c.read(f); err != nil || len(offsets) == 0 {
			return
		}
	}
	probes, err := f.Place(c.uprobes, c.program, offsets, numbers)
	if err != nil {
		c.warn(fmt.Sprintf("--mark-at: calls of %s in %s are not seen: %v", f.calls, f.Name(), err))
		return
	}
	c.mu.Lock()
	f.Probes = probes
	c.mu.Unlock()
	c.Withdraw() // a writer may have arrived before the probes were placed
}

// hasProbes reports whether another file carries this one's probes.
func (c *Placer) hasProbes(f *markedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Identify()
	for _, other := range c.files {
		if other.Probes != nil && other.Same(&f.ProbedFile) {
			f.same = other
			return true
		}
	}
	return false
}

// read finds the functions to mark in a file.
func (c *Placer) read(f *markedFile) (offsets, numbers []uint64, err error) {
	e, err := symbolize.New(f.File, f.Info.Size())
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

// refuse warns about a file that cannot be protected against overwriting.
func (c *Placer) refuse(f *markedFile, err error) {
	again := f.refused
	f.refused = errors.Is(err, unix.EAGAIN)
	if err == nil || again {
		return
	}
	why := fmt.Sprintf("it cannot be protected against overwriting (no lease: %v)", err)
	if f.refused {
		why = "it is open for writing"
	}
	c.warn(fmt.Sprintf("--mark-at: calls of %s in %s are not marked: %s", f.calls, f.Name(), why))
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
		if !f.Overwritten() {
			continue
		}
		// processes that map it from now on see other content
		where := "processes that run it"
		maps.DeleteFunc(c.files, func(_ fileKey, other *markedFile) bool {
			if other.same == f {
				where = "processes that run it, here and in other containers,"
			}
			return other == f || other.same == f
		})
		c.warn(fmt.Sprintf("%s is being overwritten: calls of %s in %s are no longer marked", f.Name(), f.calls, where))
		f.Remove()
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
