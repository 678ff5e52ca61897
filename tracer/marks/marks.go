// Package marks places probes on the functions whose calls are marks, in every file that a
// traced process maps.
package marks

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Placer places probes on the functions whose calls are marks, in every file that a traced
// process maps. Methods of a nil Placer do nothing.
type Placer struct {
	names []string
	files kernel.ProbedFiles
	proc  *host.Proc
	warn  func(string)
	own   os.FileInfo // ttmem's own program, which a command runs before it starts; nil: unknown

	mu    sync.Mutex
	found []bool // by name
}

// New places program on the functions with these names. warn gets a line for each that cannot be
// placed.
func New(names []string, program *ebpf.Program, uprobes kernel.Uprobes, proc *host.Proc, warn func(string)) *Placer {
	c := &Placer{names: names, proc: proc, warn: warn, found: make([]bool, len(names))}
	c.files = kernel.ProbedFiles{
		Uprobes: uprobes, Program: program, Find: c.find, NeedsLease: true, Each: math.MaxInt,
		Warn: func(_ int, text string) { warn(text) },
	}
	c.own, _ = os.Stat("/proc/self/exe")
	return c
}

// Inspect reads a mapped file, and reports whether it has to be tried later.
func (c *Placer) Inspect(m host.NewMapping) (later bool) {
	if c == nil {
		return false
	}
	file, err := c.proc.OpenMapped(m.PID, m.Start, m.End)
	if err != nil { // the process has ended, or changed its mappings
		return host.TryLater(err)
	}
	c.take(file, m.Path)
	return false
}

// Prepare reads files before a process maps them.
func (c *Placer) Prepare(paths []string) {
	if c == nil {
		return
	}
	for _, path := range paths {
		if file, err := host.Open(path); err == nil {
			c.take(file, path)
		}
	}
}

func (c *Placer) take(file *os.File, path string) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || c.own != nil && os.SameFile(c.own, info) {
		file.Close()
		return
	}
	at := info.Sys().(*syscall.Stat_t)
	id := host.FileID{Major: unix.Major(at.Dev), Minor: unix.Minor(at.Dev), Inode: at.Ino}
	if err := c.files.Open(file, id, path, 0, 0); err != nil {
		c.warn(err.Error())
	}
}

// find finds the functions to mark in a file.
func (c *Placer) find(file *os.File, size int64) (offsets, numbers []uint64, show string) {
	e, err := symbolize.New(file, size)
	if err != nil {
		return nil, nil, ""
	}
	defer e.Close()
	offsets, numbers = functionsNamed(e, c.names)
	c.mu.Lock()
	defer c.mu.Unlock()
	var calls []string
	for i, name := range c.names {
		if slices.Contains(numbers, uint64(i)) {
			c.found[i] = true
			calls = append(calls, name)
		}
	}
	return offsets, numbers, "calls of " + strings.Join(calls, ", ") + " (--mark-at)"
}

// Unfound returns an error for each function that is in no mapped file.
func (c *Placer) Unfound() (list []error) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range c.names {
		if !c.found[i] {
			list = append(list, fmt.Errorf("--mark-at %s: no native function of that name in the %d mapped files; "+
				"for a Python function, name a native one that it calls, or use `ttmem mark`", name, c.files.Len()))
		}
	}
	return list
}

// Withdraw removes the probes of the files that writers wait for, and lets the writers go
// on.
func (c *Placer) Withdraw() {
	if c != nil {
		c.files.Withdraw()
	}
}

// Close removes all probes. A goroutine may still be in Inspect, whose file gets none.
func (c *Placer) Close() {
	if c != nil {
		c.files.Close()
	}
}
