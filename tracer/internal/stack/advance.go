package stack

// This file reads files before processes are known to map them.

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Read reads the files that processes map, before the kernel side is loaded.
func (s *Spaces) Read(pids []int) {
	var ahead atomic.Uint64
	for _, pid := range pids {
		code, err := s.readers.CodeMappings(pid)
		if err != nil {
			continue
		}
		mappings := s.files.open(pid, code, nil)
		s.each(len(mappings), func(i int) {
			if f := mappings[i].file; f.elf != nil && ahead.Add(f.frameBytes()) < maxAhead {
				_ = s.rows.read(f, s.check)
			}
		})
		for _, m := range mappings {
			s.preread = append(s.preread, m.file) // until the process is known
		}
	}
}

// Prepare reads files that are likely to be mapped, and loads their rows into the kernel. A
// program that has mapped them may allocate before there is time for that.
func (s *Spaces) Prepare(paths []string) {
	if s == nil {
		return
	}
	mappings := make([]codeMapping, len(paths))
	s.each(len(paths), func(i int) {
		mappings[i].file = anonymous
		if f, err := s.files.openAt(paths[i]); err == nil {
			_ = s.rows.read(f, s.check)
			mappings[i].file = f
		}
	})
	tables, _, err := s.rows.tables.of(mappings, false)
	if err != nil {
		s.warn(fmt.Sprintf("stacks may end early at first: %v", err))
	}
	// they stay in use, so that they are not evicted before they are needed
	s.mu.Lock()
	s.prepared = append(s.prepared, tables)
	for _, m := range mappings {
		s.preread = append(s.preread, m.file)
	}
	s.mu.Unlock()
}

// ReadOpened reads a file that a process of a user will map, and loads its rows into the kernel, where they stay for a
// while. It takes over the file.
func (s *Spaces) ReadOpened(file *os.File, path string, user int) error {
	if s == nil {
		return file.Close()
	}
	f, err := s.files.keep(file, path)
	if err != nil {
		return err
	}
	f.user.Store(int64(user))
	return s.rows.read(f, s.check)
}

// Started publishes all changes so far, and releases the files that were read in advance.
func (s *Spaces) Started() {
	if s == nil {
		return
	}
	s.Settle()
	s.preread = nil
}
