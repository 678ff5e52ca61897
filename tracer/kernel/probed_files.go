package kernel

import (
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
)

// ProbedFiles places probes of one program in those files that processes map that need them.
type ProbedFiles struct {
	Uprobes Uprobes
	Program *ebpf.Program
	// Find returns the offsets of a file's probes, each with the cookie at its index, and what they show;
	// no offsets: the file needs none.
	Find func(file *os.File, size int64) (offsets, cookies []uint64, show string)
	// Each bounds the files with probes of a user.
	Each int
	Warn func(user int, text string)

	// changing is locked while probes are placed or removed. Files of users are not read meanwhile.
	changing sync.Mutex
	closed   bool

	mu   sync.Mutex
	byID map[host.FileID]*mappedFile
}

// A mappedFile is a file that was read, with its probes if it has any. It does not change but for its pids.
type mappedFile struct {
	ProbedFile
	user int
	show string
	// pids are those that are known to map it; nil: it has no probes.
	pids map[int]bool
}

// maxFiles bounds the files without probes that are remembered.
const maxFiles = 1 << 16

// Known reports whether a file that a process maps was read. A pid that is not 0 is remembered until Leave.
func (s *ProbedFiles) Known(id host.FileID, pid int) bool {
	f := s.at(id)
	s.join(f, pid)
	return f != nil
}

func (s *ProbedFiles) at(id host.FileID) *mappedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *ProbedFiles) join(f *mappedFile, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil && f.pids != nil && pid != 0 {
		f.pids[pid] = true
	}
}

// Leave notes that a process has ended.
func (s *ProbedFiles) Leave(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.byID {
		delete(f.pids, pid)
	}
}

// Open places the probes of a file that a process of a user maps, unless the file was read, and still has
// that content. It closes a file that gets none. The path is for messages.
func (s *ProbedFiles) Open(file *os.File, id host.FileID, path string, pid, user int) error {
	f := &mappedFile{user: user, ProbedFile: ProbedFile{File: file}, pids: make(map[int]bool)}
	defer func() {
		if f.Probes == nil {
			f.Remove()
		}
	}()
	var err error
	if f.Info, err = file.Stat(); err != nil {
		return err
	}
	before := s.at(id)
	if before != nil && (before.pids != nil || unchanged(before.Info, f.Info)) { // an open file keeps its inode
		s.join(before, pid)
		return nil
	}
	none := func() { s.remember(id, &mappedFile{ProbedFile: ProbedFile{Info: f.Info}}, 0) }
	var offsets, cookies []uint64
	var unprotected error
	find := func() error {
		offsets, cookies, f.show = s.Find(file, f.Info.Size())
		return nil
	}
	if _ = find(); len(offsets) > 0 {
		if unprotected, err = f.Protect(find); err != nil {
			return err
		}
	}
	if len(offsets) == 0 {
		none()
		return nil
	}
	f.Identify()
	s.changing.Lock()
	defer s.changing.Unlock()
	if same := s.same(f); same != nil || s.closed {
		if same != nil {
			s.remember(id, same, pid)
		}
		return nil
	}
	if !s.hasRoom(user) {
		none()
		return fmt.Errorf("%s are not all seen: their user has more than %d files with them", f.show, s.Each)
	}
	if unprotected != nil {
		s.Warn(user, Unprotected(path, unprotected))
	}
	if f.Probes, err = f.Place(s.Uprobes, s.Program, offsets, cookies); err != nil {
		none()
		return fmt.Errorf("%s in %s are not seen: %w", f.show, path, err)
	}
	s.remember(id, f, pid)
	s.withdraw() // a writer may have come before the probes
	return nil
}

func (s *ProbedFiles) remember(id host.FileID, f *mappedFile, pid int) {
	s.mu.Lock()
	if s.byID == nil {
		s.byID = make(map[host.FileID]*mappedFile)
	}
	if len(s.byID) >= maxFiles {
		maps.DeleteFunc(s.byID, func(_ host.FileID, f *mappedFile) bool { return f.pids == nil })
	}
	s.byID[id] = f
	s.mu.Unlock()
	s.join(f, pid)
}

// same returns the file that has the probes of another one: see ProbedFile.Same.
func (s *ProbedFiles) same(f *mappedFile) *mappedFile {
	for _, other := range s.probed() {
		if other.Same(&f.ProbedFile) {
			return other
		}
	}
	return nil
}

// hasRoom reports whether another file of a user may get probes. One that no process maps makes
// room. Those that were deleted, which no other process can map, have no probes any longer.
func (s *ProbedFiles) hasRoom(user int) bool {
	n := 0
	var idle *mappedFile
	for _, f := range s.probed() {
		s.mu.Lock()
		unused := len(f.pids) == 0
		s.mu.Unlock()
		switch {
		case unused && f.IsDeleted():
			s.remove(f)
		case f.user == user:
			n++
			if unused {
				idle = f
			}
		}
	}
	if n >= s.Each && idle != nil {
		s.remove(idle)
		n--
	}
	return n < s.Each
}

// probed returns the files with probes.
func (s *ProbedFiles) probed() (list []*mappedFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[*mappedFile]bool)
	for _, f := range s.byID {
		if f.pids != nil && !seen[f] {
			seen[f] = true
			list = append(list, f)
		}
	}
	return list
}

// remove removes the probes of a file, and forgets it: it is read again when a process maps it.
// s.changing must be locked.
func (s *ProbedFiles) remove(f *mappedFile) {
	s.mu.Lock()
	maps.DeleteFunc(s.byID, func(_ host.FileID, other *mappedFile) bool { return other == f })
	s.mu.Unlock()
	f.Remove()
}

// Withdraw removes the probes of files that a writer waits for, and lets the writer go on.
func (s *ProbedFiles) Withdraw() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.withdraw()
}

func (s *ProbedFiles) withdraw() {
	for _, f := range s.probed() {
		if f.Overwritten() { // processes that map it from now on see other content
			s.Warn(f.user, fmt.Sprintf("%s is being overwritten: %s are no longer seen in processes that run it", f.Name(), f.show))
			s.remove(f)
		}
	}
}

// Close removes all probes. No file gets any afterwards.
func (s *ProbedFiles) Close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.closed = true
	for _, f := range s.probed() {
		s.remove(f)
	}
}
