package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/tracer/host"
)

// Uprobes places probes in files by the best method that the kernel has. The zero value
// makes each probe a perf event of its own, which every kernel supports.
type Uprobes struct {
	// multi: one uprobe_multi link holds all probes of a file.
	multi bool
	// multiOfProcess: also if they are limited to a process.
	multiOfProcess bool
}

// AttachType is the type with which a program for probes must be loaded. ofProcess: its
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
// limits them to one process; 0 stands for all. Close removes the probes.
func (u Uprobes) Place(path string, program *ebpf.Program, offsets, cookies []uint64, pid int) (io.Closer, error) {
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
