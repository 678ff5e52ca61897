package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

// Uprobes places probes in files by the best method that the kernel has. The zero value
// makes each probe a perf event of its own, which every kernel supports.
type Uprobes struct {
	// multi: one uprobe_multi link holds all probes of a file.
	multi bool
	// multiOfProcess: also if they are limited to a process.
	multiOfProcess bool
	// placed has the probes that Hold can hold; nil: none.
	placed *placements
}

// AttachType is the type with which a program for probes must be loaded. ofProcess is true if its
// probes will be limited to a process.
func (u Uprobes) AttachType(ofProcess bool) ebpf.AttachType {
	if u.isMulti(ofProcess) {
		return ebpf.AttachTraceUprobeMulti
	}
	return ebpf.AttachNone
}

func (u Uprobes) isMulti(ofProcess bool) bool {
	if ofProcess {
		return u.multiOfProcess
	}
	return u.multi
}

// prepare sets the attach types of a collection's programs.
func (u Uprobes) prepare(spec *ebpf.CollectionSpec) {
	for name, p := range spec.Programs {
		if p.AttachType == ebpf.AttachTraceUprobeMulti {
			p.AttachType = u.AttachType(name == "on_code_dealloc" || name == "on_debug_state")
		}
	}
}

// Place attaches a program at offsets of a file, each with the cookie at its index. A pid
// limits them to one process; 0 stands for all. Close removes the probes. The path has to be
// valid until then.
func (u Uprobes) Place(path string, program *ebpf.Program, offsets, cookies []uint64, pid int) (io.Closer, error) {
	probes, err := u.place(path, program, offsets, cookies, pid)
	if err != nil || u.placed == nil {
		return probes, err
	}
	return u.placed.add(&placement{Closer: probes, path: path, offsets: offsets, pid: pid}), nil
}

func (u Uprobes) place(path string, program *ebpf.Program, offsets, cookies []uint64, pid int) (io.Closer, error) {
	exe, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	if u.isMulti(pid != 0) {
		return exe.UprobeMulti(nil, program, &link.UprobeMultiOptions{
			Addresses: offsets, Cookies: cookies, PID: uint32(pid),
		})
	}
	var placed perfProbes
	for i, offset := range offsets {
		l, err := exe.Uprobe("", program, &link.UprobeOptions{Address: offset, Cookie: cookies[i], PID: pid})
		if err != nil {
			// for a process that is gone the kernel returns ESRCH or EINVAL
			if pid != 0 && host.Ended(pid) {
				err = os.ErrNotExist
			}
			return nil, errors.Join(fmt.Errorf("at offset %#x: %w", offset, err), placed.Close())
		}
		placed = append(placed, l)
	}
	return placed, nil
}

// perfProbes are probes with a perf event each.
type perfProbes []link.Link

// Close removes all probes. The kernel takes up to a tenth of a second for each, even
// concurrently.
func (p perfProbes) Close() error {
	var errs []error
	for _, l := range p {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// A placement has the probes of one call of Place.
type placement struct {
	io.Closer
	of      *placements
	path    string
	offsets []uint64
	pid     int // 0: in all processes
}

// placements are those that are not closed.
type placements struct {
	mu   sync.Mutex
	list map[*placement]bool
}

func (s *placements) add(p *placement) *placement {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.of, s.list[p] = s, true
	return p
}

// Close removes the probes.
func (p *placement) Close() error {
	p.of.mu.Lock()
	delete(p.of.list, p)
	p.of.mu.Unlock()
	return p.Closer.Close()
}

// in returns those that may be in a process.
func (s *placements) in(pid int) (list []*placement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.list {
		if p.pid == 0 || p.pid == pid {
			list = append(list, p)
		}
	}
	return list
}

// Hold places probes that do nothing where a process has probes. They stay as long as one of
// the files is open, in any process.
func (u Uprobes) Hold(pid int) (files []*os.File, err error) {
	nothing, err := programOfNothing(u.AttachType(true))
	if err != nil {
		return nil, err
	}
	defer nothing.Close()
	var errs []error
	for _, p := range u.placed.in(pid) {
		probes, err := u.place(p.path, nothing, p.offsets, make([]uint64, len(p.offsets)), pid)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		links, isList := probes.(perfProbes)
		if !isList {
			links = perfProbes{probes.(link.Link)}
		}
		for _, l := range links {
			fd, err := unix.FcntlInt(uintptr(l.(interface{ FD() int }).FD()), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			files = append(files, os.NewFile(uintptr(fd), "probes"))
		}
		errs = append(errs, probes.Close())
	}
	return files, errors.Join(errs...)
}
