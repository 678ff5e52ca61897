package stack

// This file places the probes that each traced process needs: on its dynamic linker, and on its
// CPython. The kernel takes half a second for one on a busy host, or waits for the lock of an
// address space, so that they are placed in the background.

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
)

// A placement is a probe of a process that is being placed. Spaces.mu protects it.
type placement struct {
	placing, placed bool
	probe           io.Closer // nil: not placed, or placed ahead
	err             error     // of the last attempt
}

// maxPlacing bounds the probes that are placed at the same time for a user: each takes a thread, for
// as long as a process keeps the lock of its address space. Each process of root counts as a user.
const maxPlacing = 8

// placeOnce places a probe, unless that has begun, and reports whether it is placed. Once it is, or
// has failed, the process is published again. A failure is returned once, and tried again later.
func (s *Spaces) placeOnce(pid int, p *space, at *placement, m *codeMapping, addr uint64, program *ebpf.Program, cookie uint64) (placed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.placed = at.placed || s.ahead[pid].has(m.file, program)
	if at.placed || at.placing {
		return at.placed, nil
	}
	if err := at.err; err != nil {
		at.err = nil
		return false, err
	}
	user := host.Sharer(p.user, pid)
	if s.placing[user] >= maxPlacing {
		s.changedLater(pid)
		return false, nil
	}
	at.placing = true
	s.placing[user]++
	go func() {
		probe, err := s.place(pid, m, addr, program, cookie)
		s.mu.Lock()
		if s.placing[user]--; s.placing[user] == 0 {
			delete(s.placing, user)
		}
		at.placing, at.err = false, err
		known := s.byPID[pid] == p && s.closing.Err() == nil
		if known {
			at.probe, at.placed = probe, probe != nil
			if !s.dirty[pid] {
				s.dirty[pid] = false // its mappings have not changed
			}
		}
		s.mu.Unlock()
		switch {
		case known:
			s.wakeUp()
		case probe != nil: // the process has ended
			probe.Close()
		}
	}()
	return false, nil
}

// isPlacing reports whether probes are being placed.
func (s *Spaces) isPlacing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.placing) > 0
}

// placedProbe is a probe in a file, whose path is valid as long as the file is open.
type placedProbe struct {
	io.Closer
	file *os.File
}

// place places a probe in one process alone, at no cost for others that map the same file.
func (s *Spaces) place(pid int, m *codeMapping, addr uint64, program *ebpf.Program, cookie uint64) (io.Closer, error) {
	offset, ok := m.file.elf.FileOffset(addr)
	if !ok || m.file.file == nil {
		return nil, fmt.Errorf("%s has no code at %#x", m.file.path, addr)
	}
	// by descriptor, because the process may have mapped a file there whose file system does not answer
	path := fmt.Sprintf("/proc/self/fd/%d", m.file.file.Fd())
	placed, err := s.objs.Support.Uprobes.Place(path, program, []uint64{offset}, []uint64{cookie}, pid)
	if err != nil {
		return nil, err
	}
	return placedProbe{placed, m.file.file}, nil
}

// probeLoader lets the kernel side notice when a process unloads code, and reports whether it can
// already. A statically linked program has no dynamic linker and unloads nothing.
func (s *Spaces) probeLoader(pid int, p *space, mappings []codeMapping) (ready bool, err error) {
	i := slices.IndexFunc(mappings, func(m codeMapping) bool { return m.file.loader != nil })
	if i < 0 {
		return true, nil
	}
	m := &mappings[i]
	return s.placeOnce(pid, p, &p.loader, m, m.file.loader.debugState.Addr, s.objs.OnDebugState, m.file.loader.cookie())
}

// removeProbes removes a process's probes in the background, because the kernel takes up to a
// tenth of a second for each.
func (s *Spaces) removeProbes(p *space) {
	for _, at := range [...]*placement{&p.dealloc, &p.loader} {
		if probe := at.probe; probe != nil {
			s.removing.Go(func() { probe.Close() })
		}
	}
}
