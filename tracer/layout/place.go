package layout

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// place puts a probe on a function: on the first instruction if the kernel can emulate that one;
// else on the next such instruction that still has all arguments; else on the first one.
func (d *deriver) place(name string, f symbolize.Symbol) {
	p := Probe{Symbol: f.Name, Size: f.Size, Addr: f.Addr, ProbeAddr: f.Addr, Stepped: true}
	d.cheapen(&p, f)
	d.put(name, p)
}

func (d *deriver) put(name string, p Probe) {
	offset, ok := d.e.FileOffset(p.ProbeAddr)
	if !ok {
		d.miss(name, fmt.Sprintf("%s is not in the file", symbolize.ShortName(p.Symbol)))
		return
	}
	p.FileOffset = offset
	d.layout.Probes[name] = p
}

// emulated reports whether the kernel emulates an instruction at a uprobe; otherwise it has to
// execute it out of line. See branch_setup_xol_ops and push_setup_xol_ops in
// arch/x86/kernel/uprobes.c.
func emulated(in *x86.Instruction) bool {
	_, relative := in.Args[0].(x86asm.Rel)
	switch {
	case in.Vector:
		return false
	case in.Op == x86asm.PUSH:
		_, bytes, ok := x86.Register(in.Args[0])
		return ok && bytes == 8
	case in.Op == x86asm.NOP:
		return in.Len == 1
	case in.Op == x86asm.CALL:
		return relative && in.Len == 5
	case in.Op == x86asm.JMP:
		return relative
	}
	return in.Jumps() && relative && (in.Len == 2 || in.Len == 6) && !in.JumpsByCount()
}

// maxLead bounds the instructions before the one to probe.
const maxLead = 8

// cheapen moves a probe to the first instruction of its function that the kernel emulates, if
// every call reaches that exactly once and with unchanged arguments: those in registers, and
// those on the stack, which the kernel side finds from the stack pointer.
func (d *deriver) cheapen(p *Probe, f symbolize.Symbol) {
	fl, err := d.flow(f)
	if err != nil {
		return
	}
	for i := 0; i < len(fl.steps) && i < maxLead; i++ {
		s := fl.steps[i]
		if i == 0 && s.At != f.Addr || i > 0 && s.At != fl.steps[i-1].Next() {
			return
		}
		if sp, ok := s.State.Regs[x86.RSP].InFrame(); !ok || sp != 0 {
			return
		}
		for n, r := range x86.Arguments {
			if s.State.Regs[r] != x86.Rooted(x86.Argument, uint64(n)) {
				return
			}
		}
		if emulated(&s.Instruction) {
			if !fl.entered(f.Addr, s.At) {
				p.ProbeAddr, p.Stepped = s.At, false
			}
			return
		}
		if s.Op == x86asm.JMP || s.Op == x86asm.CALL || s.Op == x86asm.RET || s.Jumps() {
			return
		}
	}
}

// entered reports whether a jump leads from behind the entry of a function back into the range up
// to an instruction, which would then run again without a call.
func (f *flow) entered(entry, to uint64) bool {
	for _, s := range f.steps {
		if target, ok := s.Target(); ok && s.Op != x86asm.CALL && target >= entry && target <= to {
			return true
		}
	}
	return false
}

// countCores is the end of the mangled name of CoreRangeSet::num_cores().
const countCores = "12CoreRangeSet9num_coresEv"

var noRegisters = [3]int{-1, -1, -1}

// calleeSaved reports whether calls preserve a register.
func calleeSaved(register int) bool {
	return register == x86.RBX || register == x86.RBP || register >= 12 && register <= 15
}

// shards finds where BankManager::allocate_buffer counts the cores for shards: only sharded
// buffers get there, and registers still hold the request.
func (d *deriver) shards() error {
	if _, ok := d.layout.Probes["bank_allocate"]; !ok {
		return errors.New("the parameters of BankManager::allocate_buffer are not known")
	}
	fl, err := d.flowOf(managerAllocate)
	if err != nil {
		return err
	}
	for _, s := range fl.steps {
		if s.Op != x86asm.CALL || !strings.HasSuffix(fl.callee(s), countCores) {
			continue
		}
		registers := noRegisters
		for i, arg := range [...]uint64{1, 2, 5} {
			for n, v := range s.State.Regs {
				if calleeSaved(n) && v == x86.Rooted(x86.Argument, arg) {
					registers[i] = n
				}
			}
			if registers[i] < 0 {
				return errors.New("BankManager::allocate_buffer does not keep its arguments in registers")
			}
		}
		d.layout.ShardRegisters = registers
		d.put("bank_shards", Probe{
			Symbol: fl.fn.Name, Size: fl.fn.Size, Addr: fl.fn.Addr, ProbeAddr: s.At, Stepped: !emulated(&s.Instruction),
		})
		return nil
	}
	return errors.New("BankManager::allocate_buffer counts no cores")
}
