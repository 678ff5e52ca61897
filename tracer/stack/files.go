package stack

// This file opens the files that processes map, and loads their unwind rows into the
// kernel.

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"golang.org/x/sys/unix"

	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
)

// open opens the files of mappings that are not known yet.
func (s *Spaces) open(pid int, maps []host.Mapping) []codeMapping {
	mappings := make([]codeMapping, len(maps))
	s.each(len(maps), func(i int) {
		m := maps[i]
		var f *codeFile
		s.mu.Lock()
		if m.File.Inode != 0 {
			f = s.files[m.File].Value()
		} else if p := s.byPID[pid]; p != nil && p.newest != nil {
			// without a file, code does not change while it is mapped
			if k, ok := p.newest.find(m.Start); ok && k.start == m.Start && k.end == m.End && k.file.path == m.Path {
				f = k.file
			}
		}
		s.mu.Unlock()
		if f == nil {
			f = s.openOne(pid, m)
		}
		mappings[i] = codeMapping{start: m.Start, end: m.End, file: f}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range maps {
		to := &mappings[i]
		if m.File.Inode != 0 && to.file != anonymous {
			if known := s.files[m.File].Value(); known != nil {
				to.file = known // mapped twice
			}
			s.files[m.File] = weak.Make(to.file)
		}
		if to.file.elf != nil {
			to.bias, _ = to.file.elf.Bias(m.Start, m.Offset)
		}
	}
	return mappings
}

func (s *Spaces) openOne(pid int, m host.Mapping) *codeFile {
	if m.Path == "[vdso]" {
		return openVDSO(pid, m.Start, m.End)
	}
	if m.File.Inode == 0 {
		return anonymous
	}
	file, err := host.OpenMapped(pid, m.Start, m.End)
	if err != nil {
		return anonymous
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return anonymous
	}
	return openCodeFile(file, info.Size(), m.Path)
}

// readyRows returns the tables that the kernel has for the mappings' files, in use until
// they are released, and whether some are missing.
func (s *Spaces) readyRows(mappings []codeMapping) (used []*kernelTable, lacking bool) {
	seen := make(map[*codeFile]bool)
	for _, m := range mappings {
		f := m.file
		if f.elf == nil || f.noRows || seen[f] {
			continue
		}
		seen[f] = true
		if f.table == nil || f.table.gone {
			f.table = s.byBuild[f.sameRows()]
		}
		if f.table != nil && s.tables.use(f.table) {
			used = append(used, f.table)
		} else {
			f.table = nil
			lacking = true
		}
	}
	return used, lacking
}

// loadRows loads missing unwind rows into the kernel. Files of one build share a table. It
// returns the tables of the mappings' files. They are in use until released, so that
// loading others cannot evict them.
func (s *Spaces) loadRows(mappings []codeMapping) ([]*kernelTable, error) {
	used, lacking := s.readyRows(mappings)
	if !lacking {
		return used, nil
	}
	var files []*codeFile
	seen := make(map[*codeFile]bool)
	copies := make(map[string][]*codeFile) // files of one build, by sameRows
	for _, m := range mappings {
		f := m.file
		if !f.lacksRows() || seen[f] {
			continue
		}
		seen[f] = true
		id := f.sameRows()
		copies[id] = append(copies[id], f)
		if id == "" || len(copies[id]) == 1 {
			files = append(files, f)
		}
	}
	rows := make([]*unwind.Table, len(files))
	s.each(len(files), func(i int) {
		rows[i] = files[i].unwindRows()
		files[i].rows = nil // the kernel will have them
	})
	files = slices.DeleteFunc(files, func(f *codeFile) bool { return f.noRows })
	rows = slices.DeleteFunc(rows, func(t *unwind.Table) bool { return t == nil })
	tables, err := s.tables.load(rows)
	if err != nil {
		return used, err
	}
	for i, f := range files {
		f.table = tables[i]
		if id := f.sameRows(); id != "" {
			s.byBuild[id] = tables[i]
			for _, f := range copies[id] {
				f.table = tables[i]
			}
		}
	}
	return append(used, tables...), nil
}

// Prepare reads files that are likely to be mapped, and loads their rows into the kernel:
// after mapping them, a program may allocate before they could be read.
func (s *Spaces) Prepare(paths []string) {
	if s == nil {
		return
	}
	mappings := make([]codeMapping, len(paths))
	s.each(len(paths), func(i int) {
		mappings[i].file = anonymous
		file, err := os.OpenFile(paths[i], os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		info, err := file.Stat()
		id, idErr := host.FileIDOf(file)
		if err != nil || idErr != nil || !info.Mode().IsRegular() {
			file.Close()
			return
		}
		f := openCodeFile(file, info.Size(), paths[i])
		f.unwindRows()
		mappings[i].file = f
		s.mu.Lock()
		s.files[id] = weak.Make(f)
		s.mu.Unlock()
	})
	s.updating.Lock()
	defer s.updating.Unlock()
	tables, err := s.loadRows(mappings)
	if err != nil {
		s.warn(fmt.Sprintf("stacks may end early at first: %v", err))
	}
	// they stay in use, so that they are not evicted before they are needed
	s.mu.Lock()
	s.prepared = append(s.prepared, tables...)
	for _, m := range mappings {
		s.preread = append(s.preread, m.file)
	}
	s.mu.Unlock()
}

// each calls do for 0 to n-1 on all processors. Attaching to a library takes precedence.
func (s *Spaces) each(n int, do func(i int)) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.NumCPU()) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				s.awaitAttaching()
				do(i)
			}
		})
	}
	wait.Wait()
}

// awaitAttaching returns when no library is being attached to. Nothing is locked afterwards:
// to attach does not wait until files are read, which takes a tenth of a second for a large
// one.
func (s *Spaces) awaitAttaching() {
	s.attaching.RLock()
	defer s.attaching.RUnlock()
}
