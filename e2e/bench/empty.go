package main

import (
	"errors"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// emptyProbes places empty probes by a method: the lower bound for tracers built on uprobes that have their
// probes in these places of the library.
func (b *bench) emptyProbes(by kernel.Uprobes, at ...layout.Probe) func(*program) (ended, error) {
	return func(p *program) (ended, error) {
		spec, err := bpf.LoadKernel()
		if err != nil {
			return nil, err
		}
		spec.Programs["on_empty"].AttachType = by.AttachType(true)
		// maps that the empty program does not use are not loaded
		var objs struct {
			OnEmpty *ebpf.Program `ebpf:"on_empty"`
		}
		if err := spec.LoadAndAssign(&objs, nil); err != nil {
			return nil, err
		}
		offsets := make([]uint64, len(at))
		for i, p := range at {
			offsets[i] = p.FileOffset
		}
		placed, err := by.Place(b.env.Library, objs.OnEmpty, offsets, make([]uint64, len(offsets)), p.pid())
		if err != nil {
			return nil, errors.Join(err, objs.OnEmpty.Close())
		}
		return func() (uint64, error) { return 0, errors.Join(placed.Close(), objs.OnEmpty.Close()) }, nil
	}
}
