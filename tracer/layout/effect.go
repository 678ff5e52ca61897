package layout

import "golang.org/x/arch/x86/x86asm"

// address is the address of a memory operand.
func (s *state) address(in *instruction, m x86asm.Mem) value {
	if m.Segment != 0 {
		return value{}
	}
	if m.Base == x86asm.RIP {
		return number(int64(in.next()) + int64(int32(m.Disp))) // x86asm does not extend the sign here
	}
	if m.Index != 0 || m.Base == 0 {
		return value{}
	}
	n, bytes, ok := general(m.Base)
	if !ok || bytes != 8 {
		return value{}
	}
	return s.regs[n].plus(int64(int32(m.Disp))) // nor here
}

// fetch is the result of a load through a memory operand.
func (s *state) fetch(in *instruction, m x86asm.Mem) value {
	base, _, _ := general(m.Base)
	if m.Index != 0 && m.Scale == 8 && in.bytes == 8 && m.Base != 0 && m.Segment == 0 && s.regs[base].root == constant {
		return value{root: entry, id: s.regs[base].id + uint64(m.Disp)}
	}
	a := s.address(in, m)
	if a.root == frame {
		return s.content(a, int32(in.bytes))
	}
	if in.bytes < 4 { // neither a pointer nor a value that leads to one
		return value{}
	}
	return a.load()
}

// content is the value of some bytes in the frame.
func (s *state) content(at value, bytes int32) (v value) {
	if place, ok := at.inFrame(); ok {
		v, _ = s.slot(place, bytes)
	}
	return v
}

// operand is the value of a register, memory or immediate operand.
func (s *state) operand(in *instruction, arg x86asm.Arg) value {
	switch a := arg.(type) {
	case x86asm.Reg:
		if n, bytes, ok := general(a); ok && bytes >= 4 {
			return s.regs[n]
		}
	case x86asm.Mem:
		return s.fetch(in, a)
	case x86asm.Imm:
		return number(int64(a))
	}
	return value{}
}

// set writes a register operand.
func (s *state) set(arg x86asm.Arg, v value) {
	if n, bytes, ok := general(arg); ok {
		if bytes < 4 && v.root != constant8 {
			v = value{} // the rest of the register is unchanged
		}
		s.regs[n] = v
	}
}

// callerSaved are the registers that a call may change.
const callerSaved = 1<<rax | 1<<rcx | 1<<rdx | 1<<rsi | 1<<rdi | 1<<r8 | 1<<r9 | 1<<r10 | 1<<r11

func (s *state) clobber(registers uint16) {
	for i := range s.regs {
		if registers>>i&1 != 0 {
			s.regs[i] = value{}
		}
	}
}

// implicit are the registers that instructions write without naming them.
var implicit = map[x86asm.Op]uint16{
	x86asm.CBW: 1 << rax, x86asm.CWDE: 1 << rax, x86asm.CDQE: 1 << rax, x86asm.LAHF: 1 << rax, x86asm.XLATB: 1 << rax,
	x86asm.CWD: 1 << rdx, x86asm.CDQ: 1 << rdx, x86asm.CQO: 1 << rdx,
	x86asm.MUL: 1<<rax | 1<<rdx, x86asm.DIV: 1<<rax | 1<<rdx, x86asm.IDIV: 1<<rax | 1<<rdx,
	x86asm.RDTSC: 1<<rax | 1<<rdx, x86asm.RDTSCP: 1<<rax | 1<<rdx | 1<<rcx, x86asm.RDPMC: 1<<rax | 1<<rdx,
	x86asm.XGETBV: 1<<rax | 1<<rdx, x86asm.CPUID: 1<<rax | 1<<rbx | 1<<rcx | 1<<rdx,
	x86asm.CMPXCHG: 1 << rax, x86asm.CMPXCHG8B: 1<<rax | 1<<rdx, x86asm.CMPXCHG16B: 1<<rax | 1<<rdx,
	x86asm.SYSCALL:   1<<rax | 1<<rcx | 1<<r11,
	x86asm.PCMPESTRI: 1 << rcx, x86asm.PCMPISTRI: 1 << rcx,
	x86asm.LOOP: 1 << rcx, x86asm.LOOPE: 1 << rcx, x86asm.LOOPNE: 1 << rcx,
	x86asm.LEAVE: 1<<rsp | 1<<rbp, x86asm.ENTER: 1<<rsp | 1<<rbp,
}

// stringOps move memory through rsi and rdi, with rcx as a count.
var stringOps = map[x86asm.Op]bool{
	x86asm.MOVSB: true, x86asm.MOVSW: true, x86asm.MOVSD: true, x86asm.MOVSQ: true,
	x86asm.STOSB: true, x86asm.STOSW: true, x86asm.STOSD: true, x86asm.STOSQ: true,
	x86asm.LODSB: true, x86asm.LODSW: true, x86asm.LODSD: true, x86asm.LODSQ: true,
	x86asm.SCASB: true, x86asm.SCASW: true, x86asm.SCASD: true, x86asm.SCASQ: true,
	x86asm.CMPSB: true, x86asm.CMPSW: true, x86asm.CMPSD: true, x86asm.CMPSQ: true,
}

// readsOnly are the instructions that write none of their operands.
var readsOnly = map[x86asm.Op]bool{
	x86asm.CMP: true, x86asm.TEST: true, x86asm.BT: true, x86asm.NOP: true, x86asm.JMP: true,
	x86asm.RET: true, x86asm.UD2: true, x86asm.INT: true, x86asm.PREFETCHT0: true,
	x86asm.PREFETCHT1: true, x86asm.PREFETCHT2: true, x86asm.PREFETCHNTA: true, x86asm.PREFETCHW: true,
	x86asm.MUL: true, x86asm.DIV: true, x86asm.IDIV: true,
}

// apply applies the effect of an instruction.
func (s *state) apply(in *instruction) {
	if in.vector {
		s.clobber(in.clobbers)
		if m, ok := in.args[0].(x86asm.Mem); ok {
			s.store(s.address(in, m), int32(in.bytes), value{})
		}
		return
	}
	if stringOps[in.op] && !usesVector(in) {
		s.clobber(1<<rax | 1<<rcx | 1<<rsi | 1<<rdi)
		s.slots = nil
		return
	}
	a, b := in.args[0], in.args[1]
	switch in.op {
	case x86asm.CALL:
		for _, r := range arguments {
			s.escape(s.regs[r])
		}
		s.clobber(callerSaved)
		s.expose()
		// memory below the stack pointer belongs to the called function
		if sp, ok := s.regs[rsp].inFrame(); ok {
			s.forget(-1<<31, int64(sp))
		} else {
			s.slots = nil
		}
		return
	case x86asm.PUSH:
		v := s.operand(in, a)
		s.escape(v)
		s.regs[rsp] = s.regs[rsp].plus(-8)
		s.store(s.regs[rsp], 8, v)
		return
	case x86asm.POP:
		v := s.content(s.regs[rsp], 8)
		s.regs[rsp] = s.regs[rsp].plus(8)
		s.set(a, v)
		return
	case x86asm.MOV, x86asm.MOVSXD, x86asm.MOVZX, x86asm.MOVSX:
		s.move(in, a, b)
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
		if _, memory := a.(x86asm.Mem); !memory {
			s.set(a, s.sum(in, a, b))
			return
		}
	case x86asm.XOR:
		if a == b {
			s.set(a, number(0))
			return
		}
	case x86asm.XADD:
		s.set(b, rooted(counter, in.at))
		return
	case x86asm.XCHG:
		if a == b { // an idiom for nop
			return
		}
		s.set(b, value{})
	}
	s.clobber(implicit[in.op])
	if in.op == x86asm.IMUL && b == nil {
		s.clobber(1<<rax | 1<<rdx)
		return
	}
	if readsOnly[in.op] || jump(in.op) {
		return
	}
	if m, ok := a.(x86asm.Mem); ok {
		s.store(s.address(in, m), int32(max(in.bytes, 8)), value{})
		return
	}
	s.set(a, value{})
}

// move handles mov and its extending variants. Extension is ignored: no field is negative,
// and fields narrower than 4 bytes lead nowhere.
func (s *state) move(in *instruction, to, from x86asm.Arg) {
	if m, ok := to.(x86asm.Mem); ok {
		v := s.operand(in, from)
		s.escape(v)
		s.store(s.address(in, m), int32(in.bytes), v)
		return
	}
	v := s.operand(in, from)
	if _, bytes, ok := general(to); ok && bytes == 1 && v.root == constant {
		v = value{root: constant8, id: v.id & 0xff}
	}
	if in.op != x86asm.MOV && in.op != x86asm.MOVSXD && in.bytes != 4 {
		v = value{} // of 1 or 2 bytes
	}
	s.set(to, v)
}

// escape notes that the address of a part of the frame may become known elsewhere.
func (s *state) escape(v value) {
	if at, ok := v.inFrame(); ok {
		s.escaped = min(s.escaped, at)
	}
}

// sum is the result of an addition or subtraction to a register.
func (s *state) sum(in *instruction, a, b x86asm.Arg) value {
	x, y := s.operand(in, a), s.operand(in, b)
	switch {
	case y.root == constant && in.op == x86asm.ADD:
		return x.plus(int64(y.id))
	case y.root == constant:
		return x.plus(-int64(y.id))
	case x.root == constant && in.op == x86asm.ADD: // mov eax, 0x178; add rax, [rsi]
		return y.plus(int64(x.id))
	}
	return value{}
}

// usesVector distinguishes movsd of SSE2 from the string instruction with that name.
func usesVector(in *instruction) bool {
	for _, a := range in.args[:2] {
		if r, ok := a.(x86asm.Reg); ok && r >= x86asm.X0 && r <= x86asm.X15 {
			return true
		}
	}
	return false
}

// jump reports whether an instruction is a conditional jump. Operations are numbered in
// alphabetical order.
func jump(op x86asm.Op) bool {
	return op >= x86asm.JA && op <= x86asm.JS && op != x86asm.JMP || dependsOnCount(op)
}

// dependsOnCount reports whether an instruction is a jump that depends on rcx and not on the
// flags.
func dependsOnCount(op x86asm.Op) bool {
	switch op {
	case x86asm.LOOP, x86asm.LOOPE, x86asm.LOOPNE, x86asm.JCXZ, x86asm.JECXZ, x86asm.JRCXZ:
		return true
	}
	return false
}
