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
	pid   int
	pidFD int
	file  host.FileID
	probe io.Closer
}

// ProbeLoader places the probe on the usual dynamic linker for a process that is about to execute programs.
// Those that have another one get theirs when they run.
func (s *Spaces) ProbeLoader(pid int) {
	if s == nil {
		return
	}
	a, err := s.probeAhead(pid)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.ahead = a
	s.mu.Unlock()
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
	a = &aheadLoader{pid: pid}
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

// probes reports whether it has the probe that a process needs on its dynamic linker. A process with the
// same id may be another one.
func (a *aheadLoader) probes(pid int, loader *os.File) bool {
	if a == nil || a.pid != pid || loader == nil || unix.PidfdSendSignal(a.pidFD, 0, nil, 0) != nil {
		return false
	}
	id, err := host.FileIDOf(loader)
	return err == nil && id == a.file
}

func (a *aheadLoader) close() {
	if a != nil {
		a.probe.Close()
		unix.Close(a.pidFD)
	}
}
