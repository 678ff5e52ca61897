package main

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/bpf"
)

// emptyProbes places two probes that do nothing where any tracer would have to: the
// floor for all that is made of uprobes.
func (b *bench) emptyProbes(p *program) (ended, error) {
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, err
	}
	// what the empty program does not use is not loaded
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
	placed, err := exe.UprobeMulti(nil, objs.OnEmpty, &link.UprobeMultiOptions{
		Addresses: []uint64{b.alloc.FileOffset, b.free.FileOffset},
		PID:       uint32(p.pid()),
	})
	if err != nil {
		return nil, errors.Join(err, objs.OnEmpty.Close())
	}
	return func() (uint64, error) { return 0, errors.Join(placed.Close(), objs.OnEmpty.Close()) }, nil
}
