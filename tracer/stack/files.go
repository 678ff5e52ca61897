package stack

// This file opens the files that processes map, and loads their unwind rows into the
// kernel.

import (
	"errors"
	"fmt"
	"weak"

	"ttmem/tracer/host"
)

// open opens the files of mappings that are not known yet.
func (s *Spaces) open(pid int, maps []host.Mapping) []codeMapping {
	mappings := make([]codeMapping, len(maps))
	var unknown []int // one mapping of each unknown file, and all mappings without a file
	s.mu.Lock()
	first := make(map[host.FileID]bool)
	for i, m := range maps {
		to := &mappings[i]
		to.start, to.end = m.Start, m.End
		if m.File.Inode != 0 {
			to.file = s.files[m.File].Value()
		} else if p := s.byPID[pid]; p != nil && p.newest != nil {
			// without a file, code does not change while it is mapped
			if k, ok := p.newest.find(m.Start); ok && k.start == m.Start && k.end == m.End && k.file.path == m.Path {
				to.file = k.file
			}
		}
		if to.file == nil && !first[m.File] {
			first[m.File] = m.File.Inode != 0
			unknown = append(unknown, i)
		}
	}
	s.mu.Unlock()
	s.each(len(unknown), func(i int) {
		mappings[unknown[i]].file = s.openOne(pid, maps[unknown[i]])
	})
	opened := make(map[host.FileID]*codeFile)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range unknown {
		if id, f := maps[i].File, mappings[i].file; id.Inode != 0 {
			opened[id] = f
			if f != anonymous {
				s.files[id] = weak.Make(f)
			}
		}
	}
	for i, m := range maps {
		to := &mappings[i]
		if to.file == nil {
			to.file = opened[m.File]
		}
		if to.file.elf != nil {
			to.bias, _ = to.file.elf.Bias(m.Start, m.Offset)
		}
	}
	return mappings
}

func (s *Spaces) openOne(pid int, m host.Mapping) *codeFile {
	if m.Path == "[vdso]" {
		return s.openVDSO(pid, m.Start, m.End)
	}
	if m.File.Inode == 0 {
		return anonymous
	}
	file, err := s.readers.OpenMapped(pid, m.Start, m.End)
	if errors.Is(err, host.ErrNoAnswer) {
		s.changedLater(pid)
	}
	if err != nil {
		return anonymous
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return anonymous
	}
	if info.Size() >= largeFile {
		defer s.take(s.openingLarge)()
	}
	f := openCodeFile(file, info.Size(), m.Path, &s.names)
	f.file = file
	return f
}

// largeFile is the size from which files are opened one at a time: while CPython is opened, its
// names take as much memory.
const largeFile = 16 << 20

// tablesOf returns the kernel's tables for the mappings' files, which stay in use until they are
// released, and the files whose rows have to be read first. With retry, these include files
// whose tables did not fit before.
func (s *Spaces) tablesOf(mappings []codeMapping, retry bool) (used tablesInUse, unread []*codeFile, err error) {
	used = make(tablesInUse)
	seen := make(map[*codeFile]bool)
	for _, m := range mappings {
		f := m.file
		if f.elf == nil || seen[f] {
			continue
		}
		seen[f] = true
		switch {
		case !f.read.Load():
			unread = append(unread, f)
		case errors.Is(f.refusal, errTablesFull) && retry:
			f.read.Store(false)
			unread = append(unread, f)
		case f.refusal != nil:
			err = f.refusal
		case f.table == nil: // it has no rows
		case s.tables.use(f.table):
			used[f] = f.table
		default: // the kernel no longer has them
			f.read.Store(false)
			unread = append(unread, f)
		}
	}
	return used, unread, err
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
		file, err := host.Open(paths[i])
		if err != nil {
			return
		}
		info, err := file.Stat()
		id, idErr := host.FileIDOf(file)
		if err != nil || idErr != nil || !info.Mode().IsRegular() {
			file.Close()
			return
		}
		f := openCodeFile(file, info.Size(), paths[i], &s.names)
		f.file = file
		_ = s.readRows(f, s.pauseReading)
		mappings[i].file = f
		s.mu.Lock()
		s.files[id] = weak.Make(f)
		s.mu.Unlock()
	})
	s.updating.Lock()
	defer s.updating.Unlock()
	tables, _, err := s.tablesOf(mappings, false)
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
