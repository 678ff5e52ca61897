package stack

// This file places the probes of a process before it executes its program. Later that takes seconds on a busy host, in
// which a program allocates.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

// usualLoader is the dynamic linker of most programs: its name is part of x86-64's binary interface.
const usualLoader = "/lib64/ld-linux-x86-64.so.2"

// aheadProbes are the probes of a process that were placed ahead.
type aheadProbes struct {
	user  int
	pidFD int
	list  []aheadProbe
}

// aheadProbe is a probe in a file that a process is expected to map.
type aheadProbe struct {
	file    *codeFile
	addr    uint64
	program *ebpf.Program
	cookie  uint64
	probe   io.Closer // nil: it could not be placed
}

// A Python is a CPython that a process is expected to run.
type Python struct{ file *codeFile }

const (
	// maxExpected is how many processes of a user may be expected to execute programs, and allExpected how many
	// of all users.
	maxExpected, allExpected = 32, 1024
)

// ErrManyExpected means that a user has started as many commands as are prepared for.
var ErrManyExpected = fmt.Errorf("%d commands of this user run already", maxExpected)

// Expect prepares for a process of a user that is about to execute programs: it places the probes on the usual dynamic
// linker and, unless it is nil, on the CPython that they are expected to run. Those that have others get theirs when
// they run.
func (s *Spaces) Expect(pid, user int, python *Python) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.unexpect((*aheadProbes).ended)
	known := s.ahead[pid] != nil
	room := known || s.expected.Take(user, 1)
	s.mu.Unlock()
	switch {
	case known:
		return nil
	case !room:
		return ErrManyExpected
	}
	a, err := s.probeAhead(pid, python)
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
func (s *Spaces) unexpect(which func(*aheadProbes) bool) {
	for pid, a := range s.ahead {
		if which(a) {
			delete(s.ahead, pid)
			s.expected.Take(a.user, -1)
			s.removing.Go(a.close)
		}
	}
}

// probeAhead places the probes of Expect, at the same time: each waits for the kernel.
func (s *Spaces) probeAhead(pid int, python *Python) (*aheadProbes, error) {
	linker, err := s.files.openAt(usualLoader)
	if err != nil {
		return nil, err
	}
	if linker.loader == nil {
		return nil, fmt.Errorf("%s has no interface for debuggers", usualLoader)
	}
	pidFD, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	l := linker.loader
	a := &aheadProbes{pidFD: pidFD, list: []aheadProbe{{file: linker, addr: l.debugState.Addr, program: s.objs.OnDebugState, cookie: l.cookie()}}}
	if python != nil {
		f := python.file
		a.list = append(a.list, aheadProbe{file: f, addr: f.python.CodeDealloc, program: s.objs.OnCodeDealloc})
	}
	errs := make([]error, len(a.list))
	var placing sync.WaitGroup
	for i := range a.list {
		placing.Go(func() {
			p := &a.list[i]
			p.probe, errs[i] = s.place(pid, &codeMapping{file: p.file}, p.addr, p.program, p.cookie)
		})
	}
	placing.Wait()
	if err := errors.Join(errs...); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// ended reports whether the process has ended. One with the same id may be another one.
func (a *aheadProbes) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(a.pidFD), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// has reports whether the process has a program's probe in a file.
func (a *aheadProbes) has(file *codeFile, program *ebpf.Program) bool {
	return a != nil && !a.ended() &&
		slices.ContainsFunc(a.list, func(p aheadProbe) bool { return p.file == file && p.program == program })
}

// lose removes the probes if there are any: the program that the process executes does not have them.
func (a *aheadProbes) lose(removing *sync.WaitGroup) {
	if a != nil && a.list != nil {
		list := a.list
		removing.Go(func() { closeProbes(list) })
		a.list = nil
	}
}

func (a *aheadProbes) close() {
	closeProbes(a.list)
	unix.Close(a.pidFD)
}

func closeProbes(list []aheadProbe) {
	for _, p := range list {
		if p.probe != nil {
			p.probe.Close()
		}
	}
}

// PythonIn returns the CPython in a file that a process of a user will map, or nil. It takes over the file.
func (s *Spaces) PythonIn(file *os.File, path string, user int) *Python {
	if s == nil {
		file.Close()
		return nil
	}
	f, err := s.files.keep(file, path)
	if err != nil || f.python == nil {
		return nil
	}
	f.user.Store(int64(user))
	return &Python{f}
}

// PythonAt returns the CPython in a mapped file that is known from another process, or nil.
func (s *Spaces) PythonAt(m host.Mapping) *Python {
	if s == nil {
		return nil
	}
	if f := s.files.opened(m); f != nil && f.python != nil {
		return &Python{f}
	}
	return nil
}
