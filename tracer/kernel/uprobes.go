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

// Uprobes places probes in files, in the best way that the kernel has. The zero value
// makes each probe a perf event of its own, which every kernel has.
type Uprobes struct {
	// multi: one uprobe_multi link has all probes of a file.
	multi bool
	// multiOfProcess: so it has where they are limited to a process.
	multiOfProcess bool
}

// AttachType is what a program for probes has to be loaded as. ofProcess says that its
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

// prepare sets how the programs of a collection will be attached.
func (u Uprobes) prepare(spec *ebpf.CollectionSpec) {
	for name, p := range spec.Programs {
		if p.AttachType == ebpf.AttachTraceUprobeMulti {
			p.AttachType = u.AttachType(name == "on_code_dealloc" || name == "on_debug_state")
		}
	}
}

// Place has a program called at offsets of a file, each with the cookie at its index. A
// pid limits that to one process; with 0 it holds for all. Close removes the probes.
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
			// of a process that is gone the kernel says ESRCH or EINVAL
			if pid != 0 && host.Ended(pid) {
				err = os.ErrNotExist
			}
			return nil, errors.Join(fmt.Errorf("at offset %#x: %w", offset, err), placed.Close())
		}
		placed = append(placed, l)
	}
	return placed, nil
}

// perfProbes are probes that are a perf event each.
type perfProbes []link.Link

// Close removes all. The kernel takes up to a tenth of a second for each, also where they
// are closed at the same time.
func (p perfProbes) Close() error {
	var errs []error
	for _, l := range p {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
