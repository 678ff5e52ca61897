package layout

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

var noRegisters = [3]int{-1, -1, -1}

// calleeSaved reports whether calls preserve a register.
func calleeSaved(register int) bool {
	return register == rbx || register == rbp || register >= 12 && register <= 15
}

// shards finds where BankManager::allocate_buffer counts the cores for shards: only sharded
// buffers get there, and registers still hold the request.
func (d *deriver) shards() {
	const name = "bank_shards"
	if _, ok := d.layout.Probes["bank_allocate"]; !ok {
		d.miss(name, "the parameters of BankManager::allocate_buffer are not known")
		return
	}
	fl, err := d.flowOf(managerAllocate)
	if err != nil {
		d.miss(name, err.Error())
		return
	}
	for i := range fl.steps {
		s := &fl.steps[i]
		if s.op != x86asm.CALL || !strings.HasSuffix(fl.callee(s), "12CoreRangeSet9num_coresEv") {
			continue
		}
		registers := noRegisters
		for i, arg := range [...]uint64{1, 2, 5} {
			for n, v := range s.state.regs {
				if calleeSaved(n) && v == rooted(argument, arg) {
					registers[i] = n
				}
			}
			if registers[i] < 0 {
				d.miss(name, "BankManager::allocate_buffer does not keep its arguments in registers")
				return
			}
		}
		d.layout.ShardRegisters = registers
		p := Probe{Symbol: fl.fn.Name, Size: fl.fn.Size, Addr: fl.fn.Addr, ProbeAddr: s.at, Kind: emulated(&s.instruction)}
		if p.Kind == "" {
			p.Kind, p.Stepped = singleStepped, true
		}
		if sp := s.state.regs[rsp]; sp.root == frame && sp.n == 1 {
			p.StackDelta = int(-sp.path[0])
		}
		d.put(name, p)
		return
	}
	d.miss(name, "BankManager::allocate_buffer counts no cores")
}
