// Package marks places probes on the functions whose calls are marks, in every file that a
// traced process maps.
package marks

import (
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// maxMarkedFiles bounds how many files without probes are remembered.
const maxMarkedFiles = 1 << 16

// Placer places probes on the functions whose calls are marks, in every file that a traced
// process maps. Methods of a nil Placer do nothing.
type Placer struct {
	names   []string
	program *ebpf.Program
	uprobes kernel.Uprobes
	proc    *host.Proc
	warn    func(string)

	own os.FileInfo // ttmem's own program, which a command runs before it starts; nil: unknown

	// waiting are mapped files that have not been read.
	waiting chan *markedFile
	closing chan struct{} // closed by Close
	working sync.WaitGroup

	mu      sync.Mutex
	closed  bool // no more files are taken
	files   map[fileKey]*markedFile
	unread  int        // files that wait, or are being read
	settled *sync.Cond // unread is 0
	found   []bool     // by name
}

// New places program on the functions with these names. warn gets a line for each that cannot be
// placed.
func New(names []string, program *ebpf.Program, uprobes kernel.Uprobes, proc *host.Proc, warn func(string)) *Placer {
	c := &Placer{
		names: names, program: program, uprobes: uprobes, proc: proc, warn: warn,
		found: make([]bool, len(names)),
		files: make(map[fileKey]*markedFile), waiting: make(chan *markedFile, 1024), closing: make(chan struct{}),
	}
	c.own, _ = os.Stat("/proc/self/exe")
	c.settled = sync.NewCond(&c.mu)
	c.working.Go(c.work)
	return c
}

// work reads the files that wait, until Close.
func (c *Placer) work() {
	for {
		select {
		case <-c.closing:
			return
		case file := <-c.waiting:
			c.place(file)
			c.mu.Lock()
			if c.unread--; c.unread == 0 {
				c.settled.Broadcast()
			}
			c.mu.Unlock()
		}
	}
}

// Inspect queues a mapped file, and reports whether it has to be tried later. Its symbols are read
// in another goroutine, because that takes a while.
func (c *Placer) Inspect(m host.NewMapping) (later bool) {
	if c == nil {
		return false
	}
	file, err := c.proc.OpenMapped(m.PID, m.Start, m.End)
	if err != nil { // the process has ended, or changed its mappings
		return host.TryLater(err)
	}
	c.take(file)
	return false
}

// Prepare reads files before a process maps them.
func (c *Placer) Prepare(paths []string) {
	if c == nil {
		return
	}
	for _, path := range paths {
		if file, err := host.Open(path); err == nil {
			c.take(file)
		}
	}
	c.Settle()
}

// Settle waits until the files that are mapped by now have been read.
func (c *Placer) Settle() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
}

// settle is Settle with c.mu held: nothing more is read until it is released.
func (c *Placer) settle() {
	for c.unread > 0 {
		c.settled.Wait()
	}
}

func (c *Placer) take(file *os.File) {
	probed, err := kernel.NewProbedFile(file)
	f := &markedFile{ProbedFile: probed}
	if err != nil || !f.Info.Mode().IsRegular() || c.own != nil && os.SameFile(c.own, f.Info) || !c.isNew(f) {
		file.Close()
		return
	}
	select {
	case c.waiting <- f:
	case <-c.closing: // which closes the file
	}
}

// isNew reports whether a file has not been read, or not with its present content.
func (c *Placer) isNew(f *markedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	key := keyOf(f.Info)
	if before := c.files[key]; before != nil {
		// an open file cannot have been replaced
		if before.File != nil || !before.refused && kernel.Unchanged(before.Info, f.Info) {
			return false
		}
		f.refused = before.refused
	}
	if len(c.files) >= maxMarkedFiles {
		maps.DeleteFunc(c.files, func(_ fileKey, f *markedFile) bool { return f.File == nil })
	}
	c.files[key] = f
	c.unread++
	return true
}

// Unfound returns an error for each function that is in no mapped file.
func (c *Placer) Unfound() (list []error) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	for i, name := range c.names {
		if !c.found[i] {
			list = append(list, fmt.Errorf("--mark-at %s: no native function of that name in the %d mapped files; "+
				"for a Python function, name a native one that it calls, or use `ttmem mark`", name, len(c.files)))
		}
	}
	return list
}

// Close removes all probes. A goroutine may still be in Inspect, whose file gets none.
func (c *Placer) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.closing)
	c.working.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread = 0
	c.settled.Broadcast()
	for _, f := range c.files {
		f.Remove()
	}
}
