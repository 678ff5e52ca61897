package accessor

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// step executes one instruction.
func (r *run) step() error {
	i, err := r.instruction(r.at)
	if err != nil {
		return err
	}
	next := r.at + uint64(i.Len)
	size := width(i, 0)
	switch i.Op {
	case x86asm.NOP:
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD:
		value, err := r.value(i, 1)
		if err != nil {
			return err
		}
		if i.Op == x86asm.MOVSX || i.Op == x86asm.MOVSXD {
			value = extend(value, width(i, 1))
		}
		if err := r.set(i, 0, value); err != nil {
			return err
		}
	case x86asm.LEA:
		at, err := r.address(i, i.Args[1].(x86asm.Mem))
		if err != nil {
			return err
		}
		if err := r.set(i, 0, at); err != nil {
			return err
		}
	case x86asm.ADD, x86asm.ADC, x86asm.SUB, x86asm.SBB, x86asm.AND, x86asm.OR, x86asm.XOR, x86asm.CMP, x86asm.TEST, x86asm.SHL, x86asm.SHR, x86asm.SAR,
		x86asm.INC, x86asm.DEC, x86asm.NEG, x86asm.NOT:
		if err := r.arithmetic(i, size); err != nil {
			return err
		}
	case x86asm.PUSH:
		value, err := r.value(i, 0)
		if err == nil {
			err = r.push(value)
		}
		if err != nil {
			return err
		}
	case x86asm.POP:
		value, err := r.pop()
		if err == nil {
			err = r.set(i, 0, value)
		}
		if err != nil {
			return err
		}
	case x86asm.LEAVE:
		r.registers[rsp] = r.registers[rbp]
		if r.registers[rbp], err = r.pop(); err != nil {
			return err
		}
	case x86asm.JMP, x86asm.CALL:
		to, err := r.value(i, 0)
		if rel, ok := i.Args[0].(x86asm.Rel); ok {
			to, err = next+uint64(rel), nil
		}
		if err == nil && i.Op == x86asm.CALL {
			err = r.push(next)
		}
		if err != nil {
			return err
		}
		next = r.target(to)
	case x86asm.RET:
		if next, err = r.pop(); err != nil {
			return err
		}
	default:
		name := i.Op.String()
		holds, known := r.condition(name)
		if !known {
			return fmt.Errorf("%s: no instruction of an accessor", i)
		}
		switch rel, jumps := i.Args[0].(x86asm.Rel); {
		case jumps && holds:
			next += uint64(rel)
		case jumps:
		case name[0] == 'S': // set
			if err := r.set(i, 0, truth(holds)); err != nil {
				return err
			}
		default: // conditional move
			from := 0
			if holds {
				from = 1
			}
			value, err := r.value(i, from)
			if err == nil {
				err = r.set(i, 0, value)
			}
			if err != nil {
				return err
			}
		}
	}
	r.at = next
	return nil
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// arithmetic executes an operation with flags.
func (r *run) arithmetic(i *x86asm.Inst, size int) error {
	a, err := r.value(i, 0)
	b := uint64(1)
	if err == nil && i.Args[1] != nil {
		b, err = r.value(i, 1)
	}
	if err != nil {
		return err
	}
	mask, top := masks(size)
	b &= mask
	result, carry, overflow := uint64(0), false, false
	switch i.Op {
	case x86asm.ADD, x86asm.INC, x86asm.ADC:
		more := truth(r.carry && i.Op == x86asm.ADC)
		result = (a + b + more) & mask
		carry, overflow = result < a || more != 0 && result == a, (a^result)&(b^result)&top != 0
	case x86asm.SUB, x86asm.CMP, x86asm.DEC, x86asm.NEG, x86asm.SBB:
		if i.Op == x86asm.NEG {
			a, b = 0, a
		}
		less := truth(r.carry && i.Op == x86asm.SBB)
		result = (a - b - less) & mask
		carry, overflow = a < b || less != 0 && a == b, (a^b)&(a^result)&top != 0
	case x86asm.AND, x86asm.TEST:
		result = a & b
	case x86asm.OR:
		result = a | b
	case x86asm.XOR:
		result = a ^ b
	case x86asm.NOT:
		return r.set(i, 0, ^a)
	default:
		if b &= uint64(8*size - 1); b == 0 {
			return nil
		}
		switch i.Op {
		case x86asm.SHL:
			result, carry = a<<b&mask, a>>(uint64(8*size)-b)&1 != 0
		case x86asm.SHR:
			result, carry = a>>b, a>>(b-1)&1 != 0
		default:
			result, carry = uint64(int64(extend(a, size))>>b)&mask, a>>(b-1)&1 != 0
		}
	}
	if i.Op == x86asm.INC || i.Op == x86asm.DEC {
		carry = r.carry
	}
	r.zero, r.sign, r.carry, r.overflow = result == 0, result&top != 0, carry, overflow
	if i.Op == x86asm.CMP || i.Op == x86asm.TEST {
		return nil
	}
	return r.set(i, 0, result)
}

// condition reports whether the condition of a jump, a set or a conditional move holds.
func (r *run) condition(op string) (holds, known bool) {
	for _, prefix := range []string{"CMOV", "SET", "J"} {
		if len(op) > len(prefix) && op[:len(prefix)] == prefix {
			op = op[len(prefix):]
			break
		}
	}
	less := r.sign != r.overflow
	switch op {
	case "E", "NE":
		return r.zero == (op == "E"), true
	case "B", "AE":
		return r.carry == (op == "B"), true
	case "BE", "A":
		return (r.carry || r.zero) == (op == "BE"), true
	case "L", "GE":
		return less == (op == "L"), true
	case "LE", "G":
		return (less || r.zero) == (op == "LE"), true
	case "S", "NS":
		return r.sign == (op == "S"), true
	case "O", "NO":
		return r.overflow == (op == "O"), true
	}
	return false, false
}

// masks returns the bits of an operand of some bytes, and the highest of them.
func masks(size int) (mask, top uint64) {
	top = 1 << (8*size - 1)
	return top | (top - 1), top
}

// extend extends the sign of a value of some bytes.
func extend(value uint64, size int) uint64 {
	shift := 64 - 8*size
	return uint64(int64(value<<shift) >> shift)
}

// register returns the number of a register, its size in bytes, and how far its bits are shifted.
func register(reg x86asm.Reg) (n, size, shift int, ok bool) {
	switch {
	case reg >= x86asm.RAX && reg <= x86asm.R15:
		return int(reg - x86asm.RAX), 8, 0, true
	case reg >= x86asm.EAX && reg <= x86asm.R15L:
		return int(reg - x86asm.EAX), 4, 0, true
	case reg >= x86asm.AX && reg <= x86asm.R15W:
		return int(reg - x86asm.AX), 2, 0, true
	case reg >= x86asm.AL && reg <= x86asm.BL:
		return int(reg - x86asm.AL), 1, 0, true
	case reg >= x86asm.AH && reg <= x86asm.BH:
		return int(reg - x86asm.AH), 1, 8, true
	case reg >= x86asm.SPB && reg <= x86asm.R15B:
		return int(reg-x86asm.SPB) + rsp, 1, 0, true
	}
	return 0, 0, 0, false
}

// width returns the bytes of an operand.
func width(i *x86asm.Inst, arg int) int {
	switch a := i.Args[arg].(type) {
	case x86asm.Reg:
		if _, size, _, ok := register(a); ok {
			return size
		}
	case x86asm.Mem:
		if i.MemBytes > 0 && i.MemBytes <= 8 {
			return i.MemBytes
		}
	}
	return 8
}

// address returns the address of an operand in memory.
func (r *run) address(i *x86asm.Inst, m x86asm.Mem) (at uint64, err error) {
	if m.Segment != 0 {
		return 0, errReads // of the thread
	}
	at = uint64(m.Disp)
	if m.Base == x86asm.RIP {
		at += r.at + uint64(i.Len)
	} else if n, size, _, ok := register(m.Base); ok && size == 8 {
		at += r.registers[n]
	} else if m.Base != 0 {
		return 0, fmt.Errorf("%s: no instruction of an accessor", i)
	}
	if n, size, _, ok := register(m.Index); ok && size == 8 {
		at += r.registers[n] * uint64(m.Scale)
	} else if m.Index != 0 {
		return 0, fmt.Errorf("%s: no instruction of an accessor", i)
	}
	return at, nil
}

// value returns the value of an operand.
func (r *run) value(i *x86asm.Inst, arg int) (uint64, error) {
	switch a := i.Args[arg].(type) {
	case x86asm.Reg:
		if n, size, shift, ok := register(a); ok {
			mask, _ := masks(size)
			return r.registers[n] >> shift & mask, nil
		}
	case x86asm.Imm:
		mask, _ := masks(width(i, 0))
		return uint64(a) & mask, nil
	case x86asm.Mem:
		at, err := r.address(i, a)
		if err != nil {
			return 0, err
		}
		return r.load(at, width(i, arg))
	case x86asm.Rel:
		return 0, nil
	}
	return 0, fmt.Errorf("%s: no instruction of an accessor", i)
}

// set sets an operand.
func (r *run) set(i *x86asm.Inst, arg int, value uint64) error {
	switch a := i.Args[arg].(type) {
	case x86asm.Reg:
		n, size, shift, ok := register(a)
		if !ok {
			break
		}
		mask, _ := masks(size)
		if size >= 4 { // the upper half becomes 0
			r.registers[n] = value & mask
		} else {
			r.registers[n] = r.registers[n]&^(mask<<shift) | value&mask<<shift
		}
		return nil
	case x86asm.Mem:
		at, err := r.address(i, a)
		if err != nil {
			return err
		}
		return r.store(at, value, width(i, arg))
	}
	return fmt.Errorf("%s: no instruction of an accessor", i)
}
