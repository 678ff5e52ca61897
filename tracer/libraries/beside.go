package libraries

import (
	"fmt"
	"maps"
	"os"

	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// maxBeside bounds the files of a user that have probes beside the libraries.
const maxBeside = 64

// A besideFile is a file that makes or catches exceptions of a tt-metal library: one of those
// installed with it, an extension or a program. It has probes where it does.
type besideFile struct {
	kernel.ProbedFile
	user int
	pids map[int]bool // the processes that map it, of those that map a library
}

// errManyFiles is without a path, so that it is one message for all files.
var errManyFiles = fmt.Errorf("failures in code beside tt-metal are not all seen: its user has more than %d such files", maxBeside)

// KnownBeside notes that a process maps a file, and reports whether the file was inspected.
func (s *Set) KnownBeside(id host.FileID, pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, known := s.beside[id]
	s.joinBeside(f, pid)
	return known
}

// joinBeside notes that a process maps a file, until it ends. f may be nil.
func (s *Set) joinBeside(f *besideFile, pid int) {
	if f != nil && s.members[pid].library != nil {
		f.pids[pid] = true
	}
}

// OpenBeside places probes in a file that a process with a library maps, if the file needs them. It
// closes the file otherwise.
func (s *Set) OpenBeside(file *os.File, id host.FileID, path string, pid, user int) (err error) {
	f := &besideFile{user: user, pids: map[int]bool{}}
	kept := false
	defer func() {
		if !kept {
			f.Remove()
		}
	}()
	f.File = file
	if f.ProbedFile, err = kernel.NewProbedFile(file); err != nil {
		return err
	}
	offsets, cookies := besideProbes(file, f.Info.Size())
	if len(offsets) == 0 {
		s.rememberBeside(id, nil, pid)
		return nil
	}
	f.Identify()
	s.changing.Lock()
	defer s.changing.Unlock()
	if same := s.sameBeside(f); same != nil || s.closed {
		s.rememberBeside(id, same, pid)
		return nil
	}
	if !s.roomBeside(user) {
		s.rememberBeside(id, nil, pid)
		return errManyFiles
	}
	if err := s.protect(&f.ProbedFile, user, path); err != nil {
		return err
	}
	if f.Probes, err = f.Place(s.objs.Support.Uprobes, s.objs.OnProbe, offsets, cookies); err != nil {
		s.rememberBeside(id, nil, pid) // so that it is not read again
		return fmt.Errorf("placing probes in %s: %w", path, err)
	}
	kept = true
	s.rememberBeside(id, f, pid)
	return nil
}

func besideProbes(file *os.File, size int64) (offsets, cookies []uint64) {
	elf, err := symbolize.New(file, size)
	if err != nil {
		return nil, nil
	}
	defer elf.Close()
	if !layout.IsBeside(elf) || layout.IsLibrary(elf) {
		return nil, nil
	}
	return exceptionProbes(layout.Exceptions(elf))
}

// rememberBeside notes the probes of a file that a process maps; nil if it has none.
func (s *Set) rememberBeside(id host.FileID, f *besideFile, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.beside) >= maxFiles {
		for id, f := range s.beside {
			if f == nil {
				delete(s.beside, id)
			}
		}
	}
	s.beside[id] = f
	s.joinBeside(f, pid)
}

// sameBeside returns the file that has the probes of another one: see kernel.ProbedFile.Same.
func (s *Set) sameBeside(f *besideFile) *besideFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.beside {
		if other != nil && other.Same(&f.ProbedFile) {
			return other
		}
	}
	return nil
}

// roomBeside reports whether another file of a user may get probes. One that no process maps makes
// room. Those that were deleted, which no other process can map, have no probes any longer.
func (s *Set) roomBeside(user int) bool {
	n := 0
	var idle *besideFile
	s.eachBeside(func(f *besideFile) {
		s.mu.Lock()
		unused := len(f.pids) == 0
		s.mu.Unlock()
		if unused && f.IsDeleted() {
			s.removeBeside(f)
			return
		}
		if f.user == user {
			n++
			if unused {
				idle = f
			}
		}
	})
	if n < maxBeside {
		return true
	}
	if idle == nil {
		return false
	}
	s.removeBeside(idle)
	return true
}

// removeBeside removes the probes of a file, and forgets it: it is read again when a process maps it.
// s.changing must be locked.
func (s *Set) removeBeside(f *besideFile) {
	s.mu.Lock()
	maps.DeleteFunc(s.beside, func(_ host.FileID, other *besideFile) bool { return other == f })
	s.mu.Unlock()
	f.Remove()
}

// eachBeside calls do once for each file with probes. s.changing must be locked.
func (s *Set) eachBeside(do func(*besideFile)) {
	all := make(map[*besideFile]bool)
	s.mu.Lock()
	for _, f := range s.beside {
		if f != nil {
			all[f] = true
		}
	}
	s.mu.Unlock()
	for f := range all {
		do(f)
	}
}

// leaveBeside notes that a process has ended.
func (s *Set) leaveBeside(pid int) {
	for _, f := range s.beside {
		if f != nil {
			delete(f.pids, pid)
		}
	}
}

// withdrawBeside removes the probes of files that a writer waits for.
func (s *Set) withdrawBeside() {
	s.eachBeside(func(f *besideFile) {
		if f.Overwritten() {
			s.warn(f.user, fmt.Sprintf("%s is being overwritten: failures in its code are no longer seen", f.Name()))
			s.removeBeside(f)
		}
	})
}

func (s *Set) closeBeside() { s.eachBeside(s.removeBeside) }
