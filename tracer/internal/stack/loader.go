package stack

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/host"
)

// usualLoader is the dynamic linker of most programs: its name is part of x86-64's binary interface.
const usualLoader = "/lib64/ld-linux-x86-64.so.2"

// An aheadLoader is a probe on the dynamic linker of a process that was placed before the process executed
// a program. Later that takes seconds on a busy host, in which a program allocates.
type aheadLoader struct {
	user  int
	pidFD int
	file  host.FileID
	probe io.Closer
}

const (
	// maxExpected is how many processes of a user may be expected to execute programs, and allExpected how many
	// of all users.
	maxExpected, allExpected = 32, 1024
)

// ErrManyExpected means that a user has started as many commands as are prepared for.
var ErrManyExpected = fmt.Errorf("%d commands of this user run already", maxExpected)

// Expect prepares for a process of a user that is about to execute programs: it places the probe on the usual
// dynamic linker. Those that have another one get theirs when they run.
func (s *Spaces) Expect(pid, user int) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.unexpect((*aheadLoader).ended)
	known := s.ahead[pid] != nil
	room := known || s.expected.Take(user, 1)
	s.mu.Unlock()
	switch {
	case known:
		return nil
	case !room:
		return ErrManyExpected
	}
	a, err := s.probeAhead(pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.expected.Take(user, -1)
	case s.ahead[pid] != nil: // asked twice at once
		s.expected.Take(user, -1)
		s.removing.Go(a.close)
	default:
		a.user = user
		s.ahead[pid] = a
	}
	return err
}

// Expects reports whether a process is expected to execute programs.
func (s *Spaces) Expects(pid int) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead[pid] != nil
}

// unexpect removes probes that were placed ahead; s.mu is held.
func (s *Spaces) unexpect(which func(*aheadLoader) bool) {
	for pid, a := range s.ahead {
		if which(a) {
			delete(s.ahead, pid)
			s.expected.Take(a.user, -1)
			s.removing.Go(a.close)
		}
	}
}

func (s *Spaces) probeAhead(pid int) (a *aheadLoader, err error) {
	file, err := os.Open(usualLoader)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f := openCodeFile(file, info.Size(), usualLoader, new(symbolize.Cache))
	if f.loader == nil {
		return nil, fmt.Errorf("%s has no interface for debuggers", usualLoader)
	}
	f.file = file
	a = new(aheadLoader)
	if a.file, err = host.FileIDOf(file); err != nil {
		return nil, err
	}
	if a.pidFD, err = unix.PidfdOpen(pid, 0); err != nil {
		return nil, err
	}
	a.probe, err = s.place(pid, &codeMapping{file: f}, f.loader.debugState.Addr, s.objs.OnDebugState, f.loader.cookie())
	if err != nil {
		unix.Close(a.pidFD)
	}
	return a, err
}

// ended reports whether the process has ended. One with the same id may be another one.
func (a *aheadLoader) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(a.pidFD), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// probes reports whether it has the probe that the process needs on its dynamic linker.
func (a *aheadLoader) probes(loader *os.File) bool {
	if a == nil || loader == nil || a.ended() {
		return false
	}
	id, err := host.FileIDOf(loader)
	return err == nil && id == a.file
}

func (a *aheadLoader) close() {
	a.probe.Close()
	unix.Close(a.pidFD)
}
