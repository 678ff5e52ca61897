// Package marks places probes on the functions whose calls are marks, in every file that a
// traced process maps.
package marks

import (
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// maxMarkedFiles bounds how many files are remembered that have no probes.
const maxMarkedFiles = 1 << 16

// Placer places probes on the functions whose calls are marks, in every file that a
// traced process maps. Its methods do nothing where there is none.
type Placer struct {
	names   []string
	program *ebpf.Program
	uprobes kernel.Uprobes
	warn    func(string)

	own os.FileInfo // ttmem's own program, which a command is before it begins; nil: not known

	// waiting are files that were mapped and not looked at.
	waiting chan *markedFile
	working sync.WaitGroup

	mu      sync.Mutex
	files   map[fileKey]*markedFile
	unread  int        // files that wait, or are being read
	settled *sync.Cond // there are none
	found   []bool     // by name
}

// New places program on the functions of the names. warn gets what cannot be placed.
func New(names []string, program *ebpf.Program, uprobes kernel.Uprobes, warn func(string)) *Placer {
	c := &Placer{
		names: names, program: program, uprobes: uprobes, warn: warn,
		found: make([]bool, len(names)),
		files: make(map[fileKey]*markedFile), waiting: make(chan *markedFile, 1024),
	}
	c.own, _ = os.Stat("/proc/self/exe")
	c.settled = sync.NewCond(&c.mu)
	c.working.Go(func() {
		for file := range c.waiting {
			c.place(file)
			c.mu.Lock()
			if c.unread--; c.unread == 0 {
				c.settled.Broadcast()
			}
			c.mu.Unlock()
		}
	})
	return c
}

// Inspect has a mapped file looked at. To read its symbols takes a while, and is done
// elsewhere.
func (c *Placer) Inspect(m host.NewMapping) {
	if c == nil {
		return
	}
	file, err := host.OpenMapped(m.PID, m.Start, m.End)
	if err != nil {
		return // the process has ended, or mapped something else
	}
	c.take(file)
}

// Prepare looks at files before a process maps them.
func (c *Placer) Prepare(paths []string) {
	if c == nil {
		return
	}
	for _, path := range paths {
		// without waiting for a writer, where it is a FIFO
		if file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			c.take(file)
		}
	}
	c.wait()
}

// wait waits until all files that were mapped have been read.
func (c *Placer) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitLocked()
}

// waitLocked is wait where c.mu is held: until it is let go, nothing more is read.
func (c *Placer) waitLocked() {
	for c.unread > 0 {
		c.settled.Wait()
	}
}

func (c *Placer) take(file *os.File) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || c.own != nil && os.SameFile(c.own, info) {
		file.Close()
		return
	}
	f := &markedFile{file: file, info: info}
	if !c.isNew(f) {
		file.Close()
		return
	}
	c.waiting <- f
}

// isNew reports whether a file was never seen, or not with the content that it has now,
// and is to be read.
func (c *Placer) isNew(f *markedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(f.info)
	if before := c.files[key]; before != nil {
		// one that is held open is the one that was seen
		if before.file != nil || !before.refused && unchanged(before.info, f.info) {
			return false
		}
		f.refused = before.refused
	}
	if len(c.files) >= maxMarkedFiles {
		maps.DeleteFunc(c.files, func(_ fileKey, f *markedFile) bool { return f.file == nil })
	}
	c.files[key] = f
	c.unread++
	return true
}

// Settle waits until the files that are mapped by now have been looked at.
func (c *Placer) Settle() {
	if c != nil {
		c.wait()
	}
}

// Unfound are errors that name the functions which are in no file that was mapped.
func (c *Placer) Unfound() (list []error) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitLocked()
	for i, name := range c.names {
		if !c.found[i] {
			list = append(list, fmt.Errorf("--mark-at %s: no native function of that name is in the %d files that are mapped; "+
				"a function of Python has no address: take a native one that it calls, or `ttmem mark`", name, len(c.files)))
		}
	}
	return list
}

// Close removes all probes.
func (c *Placer) Close() {
	if c == nil {
		return
	}
	close(c.waiting)
	c.working.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		if f.probes != nil {
			f.probes.Close()
			f.probes = nil
		}
		if f.file != nil {
			f.file.Close() // which lets writers go on
			f.file = nil
		}
	}
}
