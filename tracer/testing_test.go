package tracer

import (
	"ttmem/bpf"
	"ttmem/tracer/kernel"
)

// testKernel is a kernel side whose processes have programs without an ExecID, and do not end.
type testKernel struct {
	losses map[bpf.KernelLossKey]bpf.KernelLoss
	ended  map[kernel.Program]bool
}

func (k *testKernel) Runs(p kernel.Program) bool                        { return !k.ended[p] }
func (k *testKernel) ForgetPrograms(int) error                          { return nil }
func (k *testKernel) ChangeProcess(kernel.Program, uint32, uint32) bool { return true }
func (k *testKernel) TakeLosses(each func(bpf.KernelLossKey, bpf.KernelLoss)) error {
	for key, l := range k.losses {
		each(key, l)
	}
	clear(k.losses)
	return nil
}

// process returns a process, also one that reported nothing.
func (d *decoder) process(pid int) *process {
	if p := d.processes[pid]; p != nil {
		return p
	}
	return d.add(kernel.Program{PID: pid}, 0)
}

// loss is why events of a process were lost; pid is 0 if the process is not known.
type loss struct {
	pid   int
	cause string
}

// lost returns the losses that are not reported yet.
func (d *decoder) lost() map[loss]lossCount {
	all := make(map[loss]lossCount)
	for cause, c := range d.unattributed {
		all[loss{0, cause}] = c
	}
	for _, p := range d.processes {
		for cause, c := range p.lost {
			all[loss{p.PID, cause}] = c
		}
	}
	return all
}
