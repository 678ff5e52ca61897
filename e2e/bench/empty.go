package main

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/bpf"
)

// emptyProbes places two empty probes where any tracer needs probes: the lower bound for
// tracers built on uprobes.
func (b *bench) emptyProbes(p *program) (ended, error) {
	return b.emptyOf(p, ebpf.AttachTraceUprobeMulti, func(exe *link.Executable, program *ebpf.Program, offsets []uint64, pid int) ([]link.Link, error) {
		l, err := exe.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: offsets, PID: uint32(pid)})
		return []link.Link{l}, err
	})
}

// emptyPerfProbes places them as one perf event each, as on kernels without uprobe_multi.
func (b *bench) emptyPerfProbes(p *program) (ended, error) {
	return b.emptyOf(p, ebpf.AttachNone, func(exe *link.Executable, program *ebpf.Program, offsets []uint64, pid int) (placed []link.Link, err error) {
		for _, offset := range offsets {
			l, err := exe.Uprobe("", program, &link.UprobeOptions{Address: offset, PID: pid})
			if err != nil {
				return placed, err
			}
			placed = append(placed, l)
		}
		return placed, nil
	})
}

func (b *bench) emptyOf(p *program, attach ebpf.AttachType, place func(*link.Executable, *ebpf.Program, []uint64, int) ([]link.Link, error)) (ended, error) {
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, err
	}
	spec.Programs["on_empty"].AttachType = attach
	// maps that the empty program does not use are not loaded
	var objs struct {
		OnEmpty *ebpf.Program `ebpf:"on_empty"`
	}
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, err
	}
	exe, err := link.OpenExecutable(b.env.Library)
	if err != nil {
		return nil, errors.Join(err, objs.OnEmpty.Close())
	}
	placed, err := place(exe, objs.OnEmpty, []uint64{b.alloc.FileOffset, b.free.FileOffset}, p.pid())
	remove := func() error {
		var errs []error
		for _, l := range placed {
			errs = append(errs, l.Close())
		}
		return errors.Join(append(errs, objs.OnEmpty.Close())...)
	}
	if err != nil {
		return nil, errors.Join(err, objs.OnEmpty.Close())
	}
	return func() (uint64, error) { return 0, remove() }, nil
}
