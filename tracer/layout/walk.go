package layout

import (
	"maps"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// value is what is known of a register: an argument of the function, followed
// through loads and additions.
type value struct {
	known bool
	// arg is the number of the argument it starts from, 0 to 5.
	arg int
	// loads are the offsets that were added and dereferenced.
	loads []int32
	// add is what was added since.
	add int32
}

func (v value) plus(n int64) value {
	v.add += int32(n)
	return v
}

func (v value) load() value {
	loads := make([]int32, 0, len(v.loads)+1)
	return value{known: v.known && len(v.loads) < maxLoads, arg: v.arg, loads: append(append(loads, v.loads...), v.add)}
}

// maxLoads bounds how far a value is followed: no field lies deeper.
const maxLoads = 6

// chain is the path to what the value points to.
func (v value) chain() Chain {
	return append(append(Chain{}, v.loads...), v.add)
}

// step is one instruction of a function, with what was known before it.
type step struct {
	addr uint64
	in   x86asm.Inst
	// mem is where its memory operand points, mem.known where that is known,
	// and bytes how wide it is; store says that it is written.
	mem   value
	bytes int
	store bool
	// regs are the registers before the instruction.
	regs *registers
	// call is the name of the function that it calls or jumps to, "" where it
	// does not or that is not known.
	call string
}

// registers are the general registers, and what was stored in the stack's words.
type registers struct {
	at    [16]value
	stack map[int32]value
}

const rsp = 4

func (r *registers) clone() *registers { return &registers{r.at, maps.Clone(r.stack)} }

// arguments are the registers of the System V calling convention in order.
var arguments = [...]int{7, 6, 2, 1, 8, 9} // rdi rsi rdx rcx r8 r9

// reg is what is known of a register operand.
func (s *step) reg(arg x86asm.Arg) value {
	if n, ok := register(arg); ok {
		return s.regs.at[n]
	}
	return value{}
}

// arg is what is known of the n-th argument at a call.
func (s *step) arg(n int) value { return s.regs.at[arguments[n]] }

// image is the code of a library.
type image struct {
	elf *symbolize.ELF
}

// name is the function that starts at an address, or that the PLT stub there
// leads to: without tt-metal's namespace, if it is in that.
func (m *image) name(addr uint64) string {
	s, offset, ok := m.elf.At(addr)
	if !ok || offset != 0 {
		if s.Name, ok = m.elf.PLTName(addr); !ok {
			return ""
		}
	}
	if rest, ok := cutNamespace(s.Name); ok {
		return rest
	}
	return s.Name
}

// maxCode is how many bytes of a function are looked at: what is wanted stands
// near its start.
const maxCode = 4096

// walk goes through a function from its first instruction to its last in the
// order of their addresses, as if no conditional jump were taken, and keeps track
// of what the registers hold. Behind a return or a jump they are what they were at
// the first jump to there. It ends early at what it cannot decode. Where code is
// reached from several places the registers may hold something else: what is found
// is checked against a second source, or by its shape.
func (m *image) walk(f symbolize.Symbol, see func(*step) bool) {
	n := int(min(f.Size, maxCode))
	if n == 0 {
		n = 256
	}
	code, err := m.elf.Text(f.Addr, n)
	if err != nil {
		return
	}
	regs := &registers{stack: make(map[int32]value)}
	for i, r := range arguments {
		regs.at[r] = value{known: true, arg: i}
	}
	regs.at[rsp] = value{known: true, arg: stack}
	jumps := make(map[uint64]*registers)
	reached := true // by the instruction before
	for at := 0; at < len(code); {
		if from := jumps[f.Addr+uint64(at)]; from != nil && !reached {
			regs = from
		}
		// x86asm takes AVX for something else
		if skip := vexLength(code[at:]); skip > 0 {
			at += skip
			continue
		}
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Len == 0 || code[at] == evex {
			return
		}
		s := step{addr: f.Addr + uint64(at), in: in, regs: regs}
		at += in.Len
		m.describe(&s, f.Addr+uint64(at))
		if !see(&s) {
			return
		}
		regs.apply(&s)
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op != x86asm.CALL && rel > 0 {
			if to := f.Addr + uint64(at) + uint64(rel); jumps[to] == nil {
				jumps[to] = regs.clone()
			}
		}
		reached = in.Op != x86asm.JMP && in.Op != x86asm.RET
	}
}

func (m *image) describe(s *step, next uint64) {
	for i, arg := range s.in.Args {
		mem, ok := arg.(x86asm.Mem)
		if !ok {
			continue
		}
		s.bytes = s.in.MemBytes
		if base, ok := register(mem.Base); ok && mem.Index == 0 && mem.Segment == 0 {
			s.mem = s.regs.at[base].plus(int64(int32(mem.Disp)))
		}
		s.store = i == 0 && writes(s.in.Op)
	}
	if s.in.Op == x86asm.CALL || s.in.Op == x86asm.JMP {
		if rel, ok := s.in.Args[0].(x86asm.Rel); ok {
			s.call = m.name(uint64(int64(next) + int64(rel)))
		}
	}
}

func writes(op x86asm.Op) bool {
	return op == x86asm.MOV || op == x86asm.XADD || op == x86asm.OR || op == x86asm.AND
}

// apply brings the registers to after an instruction.
func (r *registers) apply(s *step) {
	in := s.in
	switch in.Op {
	case x86asm.CALL:
		for _, n := range []int{0, 1, 2, 6, 7, 8, 9, 10, 11} {
			r.at[n] = value{}
		}
		return
	case x86asm.CMP, x86asm.TEST, x86asm.NOP, x86asm.JMP, x86asm.RET, x86asm.BT:
		return
	case x86asm.DIV, x86asm.IDIV, x86asm.MUL:
		r.at[0], r.at[2] = value{}, value{}
		return
	case x86asm.PUSH:
		r.at[rsp] = r.at[rsp].plus(-8)
		r.stack[r.at[rsp].add] = s.reg(in.Args[0])
		return
	}
	if s.store && s.mem.known && s.mem.arg == stack && len(s.mem.loads) == 0 {
		r.stack[s.mem.add] = s.reg(in.Args[1])
		if s.bytes != 8 {
			r.stack[s.mem.add] = value{}
		}
	}
	to, ok := register(in.Args[0])
	if !ok {
		return
	}
	switch in.Op {
	case x86asm.MOV, x86asm.MOVSXD, x86asm.MOVZX:
		switch from := in.Args[1].(type) {
		case x86asm.Mem:
			r.at[to] = r.loaded(s)
		case x86asm.Reg:
			r.at[to] = s.reg(from)
		case x86asm.Imm:
			// a constant: known as nothing, but for what may be added to it
			r.at[to] = value{arg: constant, add: int32(from)}
		default:
			r.at[to] = value{}
		}
	case x86asm.LEA:
		r.at[to] = s.mem
	case x86asm.ADD, x86asm.SUB:
		r.at[to] = sum(in, r.at[to], s)
	case x86asm.POP:
		v := r.stack[r.at[rsp].add]
		r.at[rsp] = r.at[rsp].plus(8)
		r.at[to] = v
	default:
		r.at[to] = value{}
	}
}

// loaded is what a load leaves in its register.
func (r *registers) loaded(s *step) value {
	switch {
	case !s.mem.known:
		return value{}
	case s.mem.arg == stack && len(s.mem.loads) == 0:
		if s.bytes != 8 {
			return value{}
		}
		return r.stack[s.mem.add]
	}
	return s.mem.load()
}

// constant marks the value of an immediate operand.
const constant = -1

// stack marks a place in the function's stack frame, add bytes from where the
// stack pointer was at the start.
const stack = -2

func sum(in x86asm.Inst, v value, s *step) value {
	sign := int64(1)
	if in.Op == x86asm.SUB {
		sign = -1
	}
	switch from := in.Args[1].(type) {
	case x86asm.Imm:
		if v.known {
			return v.plus(sign * int64(from))
		}
	case x86asm.Mem: // mov eax, 0x178; add rax, [rsi]
		if !v.known && v.arg == constant && s.mem.known && sign > 0 {
			return s.mem.load().plus(int64(v.add))
		}
	}
	return value{}
}

// register is the number of a general register of any width.
func register(arg x86asm.Arg) (int, bool) {
	r, ok := arg.(x86asm.Reg)
	if !ok {
		return 0, false
	}
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return int(r - x86asm.RAX), true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return int(r - x86asm.EAX), true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return int(r - x86asm.AX), true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return int(r-x86asm.SPB) + 4, true
	case r >= x86asm.AL && r <= x86asm.BL:
		return int(r - x86asm.AL), true
	}
	return 0, false
}

// evex is the first byte of AVX-512 instructions.
const evex = 0x62

// vexLength is the length of an AVX instruction, which x86asm does not know; they
// touch no general register that matters here. 0: it is something else.
func vexLength(code []byte) int {
	var at int
	opcodeMap := byte(1)
	switch {
	case len(code) > 3 && code[0] == 0xc5:
		at = 2
	case len(code) > 4 && code[0] == 0xc4:
		at, opcodeMap = 3, code[1]&0x1f
	default:
		return 0
	}
	at++ // the opcode
	if at >= len(code) {
		return 0
	}
	if opcodeMap == 1 && code[at-1] == 0x77 { // vzeroupper has no operand
		return at
	}
	modrm := code[at]
	at++
	if mod, rm := modrm>>6, modrm&7; mod != 3 {
		if rm == 4 {
			if at >= len(code) {
				return 0
			}
			if mod == 0 && code[at]&7 == 5 {
				at += 4
			}
			at++
		}
		switch {
		case mod == 1:
			at++
		case mod == 2, mod == 0 && rm == 5:
			at += 4
		}
	}
	if opcodeMap == 3 || immediate(code, opcodeMap) {
		at++
	}
	if at > len(code) {
		return 0
	}
	return at
}

// immediate reports whether an instruction of the 0f map ends with a byte of its
// own: shuffles, shifts by a constant and comparisons.
func immediate(code []byte, opcodeMap byte) bool {
	if opcodeMap != 1 {
		return false
	}
	opcode := code[2]
	if code[0] == 0xc4 {
		opcode = code[3]
	}
	return opcode >= 0x70 && opcode <= 0x73 || opcode == 0xc2 || opcode >= 0xc4 && opcode <= 0xc6
}
