package stack

// This file opens the files that processes map, and loads their unwind rows into the
// kernel.

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"weak"

	"ttmem/tracer/host"
)

// opening are files that are being opened for a process.
type opening struct {
	files    atomic.Int64  // opened so far
	done     chan struct{} // closed when all are open
	mappings []codeMapping // then
}

// openInTime opens the files of mappings, unless a file system does not answer: then the error is
// host.ErrNoAnswer, for all processes of that user until it answers. Each process of root counts as
// a user.
func (s *Spaces) openInTime(pid int, maps []host.Mapping) ([]codeMapping, error) {
	user := host.Sharer(host.RealUser(pid), pid)
	o := &opening{done: make(chan struct{})}
	s.mu.Lock()
	last := s.opening[user]
	if last != nil && last.mappings == nil {
		s.mu.Unlock()
		return nil, host.ErrNoAnswer
	}
	s.opening[user] = o
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.opening[user] == o {
			delete(s.opening, user)
		}
	}
	go func() {
		host.RaisePriority()
		mappings := s.open(pid, maps, &o.files)
		runtime.KeepAlive(last) // its files were not closed meanwhile
		s.mu.Lock()
		o.mappings = mappings
		s.mu.Unlock()
		close(o.done)
	}()
	for before := int64(-1); before < o.files.Load(); {
		before = o.files.Load()
		select {
		case <-o.done:
			end()
			return o.mappings, nil
		case <-s.closing.Done():
			return nil, host.ErrNoAnswer
		case <-time.After(host.ReadPatience):
		}
	}
	go func() {
		<-o.done
		s.Changed(pid)
		time.AfterFunc(closeFilesAfter, end) // until then the files stay open for the next update
	}()
	return nil, host.ErrNoAnswer
}

// open opens the files of mappings that are not known yet, and counts them.
func (s *Spaces) open(pid int, maps []host.Mapping, count *atomic.Int64) []codeMapping {
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
		count.Add(1)
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
