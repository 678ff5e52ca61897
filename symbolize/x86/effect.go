package x86

import "golang.org/x/arch/x86/x86asm"

// address is the address of a memory operand.
func (s *State) address(in *Instruction, m x86asm.Mem) Value {
	n, bytes, ok := Register(m.Base)
	switch {
	case m.Segment != 0 || m.Index != 0:
	case m.Base == x86asm.RIP:
		return number(int64(in.Next()) + m.Disp)
	case m.Base == 0:
		return number(m.Disp)
	case ok && bytes == 8:
		return s.Regs[n].Plus(m.Disp)
	}
	return Value{}
}

// fetch is the result of a load through a memory operand.
func (s *State) fetch(in *Instruction, m x86asm.Mem) Value {
	base, _, _ := Register(m.Base)
	if m.Index != 0 && m.Scale == 8 && in.MemBytes == 8 && m.Base != 0 && m.Segment == 0 && s.Regs[base].Root == Constant {
		return Value{Root: Entry, ID: s.Regs[base].ID + uint64(m.Disp)}
	}
	a := s.address(in, m)
	if a.Root == Frame {
		return s.Content(a, in.MemBytes)
	}
	if in.MemBytes < 4 { // neither a pointer nor a value that leads to one
		return Value{}
	}
	return a.Load()
}

// operand is the value of a register, memory or immediate operand.
func (s *State) operand(in *Instruction, arg x86asm.Arg) Value {
	switch a := arg.(type) {
	case x86asm.Reg:
		if n, bytes, ok := Register(a); ok && bytes >= 4 {
			return s.Regs[n]
		}
	case x86asm.Mem:
		return s.fetch(in, a)
	case x86asm.Imm:
		return number(int64(a))
	}
	return Value{}
}

// set writes a register operand.
func (s *State) set(arg x86asm.Arg, v Value) {
	if n, bytes, ok := Register(arg); ok {
		if bytes < 4 && v.Root != Constant8 {
			v = Value{} // the rest of the register is unchanged
		}
		s.Regs[n] = v
	}
}

// callerSaved are the registers that a call may change.
const callerSaved = 1<<RAX | 1<<RCX | 1<<RDX | 1<<RSI | 1<<RDI | 1<<R8 | 1<<R9 | 1<<R10 | 1<<R11

func (s *State) clobber(registers uint16) {
	for i := range s.Regs {
		if registers>>i&1 != 0 {
			s.Regs[i] = Value{}
		}
	}
}

// implicit are the registers that instructions write without naming them.
var implicit = map[x86asm.Op]uint16{
	x86asm.CBW: 1 << RAX, x86asm.CWDE: 1 << RAX, x86asm.CDQE: 1 << RAX, x86asm.LAHF: 1 << RAX, x86asm.XLATB: 1 << RAX,
	x86asm.CWD: 1 << RDX, x86asm.CDQ: 1 << RDX, x86asm.CQO: 1 << RDX,
	x86asm.MUL: 1<<RAX | 1<<RDX, x86asm.DIV: 1<<RAX | 1<<RDX, x86asm.IDIV: 1<<RAX | 1<<RDX,
	x86asm.RDTSC: 1<<RAX | 1<<RDX, x86asm.RDTSCP: 1<<RAX | 1<<RDX | 1<<RCX, x86asm.RDPMC: 1<<RAX | 1<<RDX,
	x86asm.XGETBV: 1<<RAX | 1<<RDX, x86asm.CPUID: 1<<RAX | 1<<RBX | 1<<RCX | 1<<RDX,
	x86asm.CMPXCHG: 1 << RAX, x86asm.CMPXCHG8B: 1<<RAX | 1<<RDX, x86asm.CMPXCHG16B: 1<<RAX | 1<<RDX,
	x86asm.SYSCALL:   1<<RAX | 1<<RCX | 1<<R11,
	x86asm.PCMPESTRI: 1 << RCX, x86asm.PCMPISTRI: 1 << RCX,
	x86asm.LOOP: 1 << RCX, x86asm.LOOPE: 1 << RCX, x86asm.LOOPNE: 1 << RCX,
	x86asm.LEAVE: 1<<RSP | 1<<RBP, x86asm.ENTER: 1<<RSP | 1<<RBP,
}

// readsOnly are the instructions that write none of their operands.
var readsOnly = map[x86asm.Op]bool{
	x86asm.CMP: true, x86asm.TEST: true, x86asm.BT: true, x86asm.NOP: true, x86asm.JMP: true,
	x86asm.RET: true, x86asm.UD2: true, x86asm.INT: true, x86asm.PREFETCHT0: true,
	x86asm.PREFETCHT1: true, x86asm.PREFETCHT2: true, x86asm.PREFETCHNTA: true, x86asm.PREFETCHW: true,
	x86asm.MUL: true, x86asm.DIV: true, x86asm.IDIV: true,
}

// apply applies the effect of an instruction.
func (s *State) apply(in *Instruction) {
	a, b := in.Args[0], in.Args[1]
	to, toMemory := a.(x86asm.Mem)
	if in.Vector {
		s.clobber(in.clobbers)
		if toMemory {
			s.store(s.address(in, to), in.MemBytes, Value{})
		}
		return
	}
	switch in.Op {
	case x86asm.CALL:
		for _, r := range Arguments {
			s.escape(s.Regs[r])
		}
		s.clobber(callerSaved)
		s.expose()
		// memory below the stack pointer belongs to the called function
		if sp, ok := s.Regs[RSP].InFrame(); ok {
			s.forget(-1<<31, int64(sp))
		} else {
			s.slots = nil
		}
		return
	case x86asm.PUSH:
		v := s.operand(in, a)
		s.escape(v)
		s.Regs[RSP] = s.Regs[RSP].Plus(-8)
		s.store(s.Regs[RSP], 8, v)
		return
	case x86asm.POP:
		v := s.Content(s.Regs[RSP], 8)
		s.Regs[RSP] = s.Regs[RSP].Plus(8)
		s.set(a, v)
		return
	case x86asm.MOV, x86asm.MOVSXD, x86asm.MOVZX, x86asm.MOVSX:
		s.move(in)
		return
	case x86asm.LEA:
		m, _ := b.(x86asm.Mem)
		v := s.address(in, m)
		if a != x86asm.Arg(x86asm.RSP) {
			s.escape(v)
		}
		s.set(a, v)
		return
	case x86asm.ADD, x86asm.SUB:
		if !toMemory {
			s.set(a, s.sum(in))
			return
		}
	case x86asm.XOR:
		if a == b {
			s.set(a, number(0))
			return
		}
	case x86asm.XADD:
		s.set(b, Rooted(Counter, in.At))
		return
	case x86asm.XCHG:
		if a == b { // an idiom for nop
			return
		}
		s.set(b, Value{})
	case x86asm.IMUL:
		if b == nil {
			s.clobber(1<<RAX | 1<<RDX)
			return
		}
	default:
		if isString(in) {
			s.clobber(1<<RAX | 1<<RCX | 1<<RSI | 1<<RDI)
			s.slots = nil
			return
		}
	}
	s.clobber(implicit[in.Op])
	switch {
	case readsOnly[in.Op] || in.Jumps():
	case toMemory:
		s.store(s.address(in, to), max(in.MemBytes, 8), Value{})
	default:
		s.set(a, Value{})
	}
}

// move handles mov and its extending variants. Extension is ignored: no field is negative,
// and fields narrower than 4 bytes lead nowhere.
func (s *State) move(in *Instruction) {
	to := in.Args[0]
	v := s.operand(in, in.Args[1])
	if m, ok := to.(x86asm.Mem); ok {
		s.escape(v)
		s.store(s.address(in, m), in.MemBytes, v)
		return
	}
	if _, bytes, ok := Register(to); ok && bytes == 1 && v.Root == Constant {
		v = Value{Root: Constant8, ID: v.ID & 0xff}
	}
	if in.Op != x86asm.MOV && in.Op != x86asm.MOVSXD && in.MemBytes != 4 {
		v = Value{} // of 1 or 2 bytes
	}
	s.set(to, v)
}

// sum is the result of an addition or subtraction to a register.
func (s *State) sum(in *Instruction) Value {
	x, y := s.operand(in, in.Args[0]), s.operand(in, in.Args[1])
	switch {
	case y.Root == Constant && in.Op == x86asm.ADD:
		return x.Plus(int64(y.ID))
	case y.Root == Constant:
		return x.Plus(-int64(y.ID))
	case x.Root == Constant && in.Op == x86asm.ADD: // mov eax, 0x178; add rax, [rsi]
		return y.Plus(int64(x.ID))
	}
	return Value{}
}

// isString reports whether an instruction goes through memory with rsi and rdi, and with rcx as a count:
// only those have operands in these segments.
func isString(in *Instruction) bool {
	m, _, ok := in.Mem()
	return ok && (m.Segment == x86asm.ES || m.Segment == x86asm.DS) && !readsOnly[in.Op]
}
