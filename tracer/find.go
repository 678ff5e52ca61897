package tracer

// This file finds what to trace: the libraries that processes map, now and later.

import (
	"errors"
	"fmt"
	"os"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

func (t *Tracer) watch() (err error) {
	if t.mappings, err = watchMappings(); err != nil {
		return err
	}
	t.watching.Add(1)
	go func() {
		defer t.watching.Done()
		t.mappings.Read(t.mapped, func(n uint64) {
			t.find(event.Event{Kind: event.Lost, TimeNs: now(), Count: n, Cause: "mappings not seen"})
		})
	}()
	return nil
}

// scan attaches to what processes map already: those given, or all.
func (t *Tracer) scan(pids []int) error {
	named := len(pids) > 0
	if !named {
		var err error
		if pids, err = processes(); err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
	}
	for _, pid := range pids {
		maps, err := executableMaps(pid)
		if err != nil {
			if named {
				return fmt.Errorf("no process %d", pid)
			}
			continue
		}
		at := now()
		for _, m := range maps {
			if err := t.meet(mapping{timeNs: at, pid: pid, start: m.start, end: m.end, file: m.file}, m.path); err != nil && named {
				return err
			}
		}
	}
	return nil
}

// mapped takes what the kernel tells of a new mapping.
func (t *Tracer) mapped(m mapping) {
	if m.pid == os.Getpid() || m.file.inode == 0 {
		return
	}
	if len(t.listed) > 0 {
		var p bpf.KernelProcess
		if t.objs.Processes.Lookup(uint32(m.pid), &p) != nil {
			return
		}
	}
	if err := t.meet(m, ""); err != nil {
		t.warn(err.Error())
	}
}

// meet looks at a mapped file, once, and attaches to it if it is a tt-metal
// library.
func (t *Tracer) meet(m mapping, path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, known := t.byFile[m.file]
	if !known {
		file, err := openMapped(m.pid, m.start, m.end)
		if err != nil {
			return nil // unmapped again, or the process is gone
		}
		if path == "" {
			path = mappedPath(m.pid, m.file)
		}
		l, err = t.open(file, path, fmt.Sprintf("/proc/%d/root", m.pid))
		t.byFile[m.file] = l
		if errors.Is(err, ErrNoLibrary) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if l != nil && !t.seen[m.pid] {
		t.seen[m.pid] = true
		t.found = append(t.found, event.Event{
			Kind: event.ProcessStart, TimeNs: m.timeNs, PID: m.pid, TID: m.pid,
			Library: l.path,
		})
	}
	return nil
}

// maxLibraries is MAX_LIBRARIES of bpf/src/layout.h.
const maxLibraries = 64

func (t *Tracer) open(file *os.File, path, root string) (*library, error) {
	l, err := openLibrary(file, path, root)
	if err != nil {
		file.Close()
		return nil, err
	}
	if len(t.libraries) == maxLibraries {
		file.Close()
		return nil, fmt.Errorf("%s is not traced: %d library files are traced already", path, maxLibraries)
	}
	for _, m := range l.layout.Missing {
		t.warn(fmt.Sprintf("%s%s: %s: %s", path, inRelease(l.release), m.Name, m.Costs))
	}
	if err := l.attach(&t.objs, uint8(len(t.libraries))); err != nil {
		l.close()
		return nil, err
	}
	t.libraries = append(t.libraries, l)
	return l, nil
}

// Prepare attaches to a library file before a process maps it.
func (t *Tracer) Prepare(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	id, err := identity(file)
	if err != nil {
		file.Close()
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFile[id] != nil {
		file.Close()
		return nil
	}
	l, err := t.open(file, path, "/")
	if err != nil {
		return err
	}
	t.byFile[id] = l
	return nil
}

// Libraries is the number of library files that are traced.
func (t *Tracer) Libraries() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.libraries)
}

// Maps reports whether a process is known to map a tt-metal library.
func (t *Tracer) Maps(pid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[pid]
}

func (t *Tracer) library(index uint8) *library {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(index) < len(t.libraries) {
		return t.libraries[index]
	}
	return nil
}

// find takes an event from another goroutine.
func (t *Tracer) find(e event.Event) {
	t.mu.Lock()
	t.found = append(t.found, e)
	t.mu.Unlock()
}

func (t *Tracer) takeFound() {
	t.mu.Lock()
	found := t.found
	t.found = nil
	t.mu.Unlock()
	for _, e := range found {
		if e.Kind == event.ProcessStart {
			var l *library
			t.mu.Lock()
			for _, candidate := range t.libraries {
				if candidate.path == e.Library {
					l = candidate
				}
			}
			t.mu.Unlock()
			t.decoder.start(&e, l)
			continue
		}
		t.queue.push(e)
	}
}
