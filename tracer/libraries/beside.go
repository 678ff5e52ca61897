package libraries

import (
	"fmt"
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
	pids map[int]bool // the processes that map it
}

// KnownBeside notes that a process maps a file, and reports whether the file was inspected.
func (s *Set) KnownBeside(id host.FileID, pid int) bool {
	f, known := s.beside[id]
	if f != nil && f.Probes == nil {
		return false
	}
	if f != nil && pid != 0 {
		f.pids[pid] = true
	}
	return known
}

// OpenBeside places probes in a file that a process with a library maps, if the file needs them. It
// closes the file otherwise.
func (s *Set) OpenBeside(file *os.File, id host.FileID, path string, pid, user int) (err error) {
	f := &besideFile{user: user, pids: map[int]bool{}}
	if pid != 0 {
		f.pids[pid] = true
	}
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
		s.rememberBeside(id, nil)
		return nil
	}
	f.Identify()
	s.changing.Lock()
	defer s.changing.Unlock()
	if same := s.sameBeside(f); same != nil || s.closed {
		s.rememberBeside(id, same)
		return nil
	}
	if !s.roomBeside(user) {
		return fmt.Errorf("%s: failures in its code are not seen: its user has too many such files", path)
	}
	if err := s.protect(&f.ProbedFile, path); err != nil {
		return err
	}
	if f.Probes, err = f.Place(s.objs.Support.Uprobes, s.objs.OnProbe, offsets, cookies); err != nil {
		return fmt.Errorf("placing probes in %s: %w", path, err)
	}
	kept = true
	s.rememberBeside(id, f)
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

func (s *Set) rememberBeside(id host.FileID, f *besideFile) {
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
}

// sameBeside returns the file that has the probes of another one: see kernel.ProbedFile.Same.
func (s *Set) sameBeside(f *besideFile) *besideFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.beside {
		if other != nil && other.Probes != nil && other.Same(&f.ProbedFile) {
			for pid := range f.pids {
				other.pids[pid] = true
			}
			return other
		}
	}
	return nil
}

// roomBeside reports whether another file of a user may get probes. Files that no process maps make
// room.
func (s *Set) roomBeside(user int) bool {
	n := 0
	s.eachBeside(func(f *besideFile) {
		if f.user == user {
			n++
		}
	})
	if n < maxBeside {
		return true
	}
	removed := false
	s.eachBeside(func(f *besideFile) {
		s.mu.Lock()
		idle := f.user == user && len(f.pids) == 0
		s.mu.Unlock()
		if idle {
			f.Remove()
			removed = true
		}
	})
	return removed
}

// eachBeside calls do once for each file with probes. s.changing must be locked.
func (s *Set) eachBeside(do func(*besideFile)) {
	all := make(map[*besideFile]bool)
	s.mu.Lock()
	for _, f := range s.beside {
		if f != nil && f.Probes != nil {
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
			s.warn(fmt.Sprintf("%s is being overwritten: failures in its code are no longer seen", f.Name()))
			f.Remove()
		}
	})
}

func (s *Set) closeBeside() { s.eachBeside((*besideFile).Remove) }
