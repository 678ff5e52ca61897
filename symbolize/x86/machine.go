package x86

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// A Module is a file that is mapped in the process.
type Module struct {
	// Start and End are the addresses of its code in the process. Bias is their distance from those
	// in the file.
	Start, End, Bias uint64
	// PLT names the function that an entry of the file's procedure linkage table calls.
	PLT func(address uint64) (name string, ok bool)
	// Function is the address of an exported function in the file.
	Function func(name string) (address uint64, ok bool)
}

// A Machine runs short functions on a copy of a process's memory, as they would run in it. So their
// results are known without the layout of their classes.
type Machine struct {
	Modules []Module
	// Read fills b from an address of the process.
	Read func(address uint64, b []byte) bool

	code  map[uint64]*Instruction
	found map[string]uint64
}

const (
	// maxSteps bounds the instructions of one call.
	maxSteps = 4096
	// The stack is at an address that no process has.
	stackEnd  = 1 << 60
	stackSize = 8 << 10
	// returned is the address to which the function returns.
	returned = 1 << 61
	// maxKept bounds the decoded instructions that are kept, and maxWritten the bytes that a call
	// writes besides its stack, such as counts of references.
	maxKept    = 1 << 16
	maxWritten = 256
)

// Errors of a function that cannot be run to its end.
var (
	errSteps  = errors.New("takes too many instructions")
	errWrites = errors.New("writes much")
	errReads  = errors.New("reads what cannot be read")
)

// Function returns the address in the process of the first of these functions that a module has;
// 0 if there is none.
func (m *Machine) Function(names ...string) uint64 {
	if m.found == nil {
		m.found = make(map[string]uint64)
	}
	for _, name := range names {
		at, known := m.found[name]
		if !known {
			for i := range m.Modules {
				if in, ok := m.Modules[i].Function(name); ok {
					at = in + m.Modules[i].Bias
					break
				}
			}
			m.found[name] = at
		}
		if at != 0 {
			return at
		}
	}
	return 0
}

// Call runs the function at an address with one argument, and returns rax and rdx.
func (m *Machine) Call(function, argument uint64) (rax, rdx uint64, err error) {
	r := &run{Machine: m, at: function}
	r.registers[RDI] = argument
	r.toEnd()
	return r.registers[RAX], r.registers[RDX], r.err
}

// CallForObject runs the function at an address with one argument, and returns the first word of
// the object that it returns: one that is too large for registers, or no plain value.
func (m *Machine) CallForObject(function, argument uint64) (word uint64, err error) {
	const object = stackEnd - 256
	r := &run{Machine: m, at: function}
	r.registers[RDI], r.registers[RSI] = object, argument
	r.toEnd()
	word = r.load(object, 8)
	return word, r.err
}

// target returns where a jump or call to an address leads: past the linkage table.
func (m *Machine) target(at uint64) uint64 {
	for i := range m.Modules {
		if module := &m.Modules[i]; at >= module.Start && at < module.End {
			if name, ok := module.PLT(at - module.Bias); ok {
				if to := m.Function(name); to != 0 {
					return to
				}
			}
			break
		}
	}
	return at
}

// A run is a call in progress. After an error nothing that it does counts.
type run struct {
	*Machine
	registers                   [16]uint64
	at                          uint64
	stack                       [stackSize]byte
	written                     map[uint64]byte
	zero, sign, carry, overflow bool
	err                         error
}

func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// toEnd runs a function until it returns.
func (r *run) toEnd() {
	function := r.at
	r.registers[RSP] = stackEnd - 512
	r.push(returned)
	for range maxSteps {
		if r.at == returned {
			return
		}
		at := r.at
		if r.step(); r.err != nil {
			r.err = fmt.Errorf("the function at %#x, at %#x: %w", function, at, r.err)
			return
		}
	}
	r.err = errSteps
}

// instruction decodes the next instruction.
func (r *run) instruction() *Instruction {
	if known := r.code[r.at]; known != nil {
		return known
	}
	var b [MaxInstruction]byte
	n := len(b)
	for n > 0 && !r.Read(r.at, b[:n]) { // the mapping may end here
		n--
	}
	in, err := Decode(b[:n], r.at)
	switch {
	case n == 0:
		r.fail(errReads)
	case err != nil:
		r.fail(err)
	case r.code == nil || len(r.code) >= maxKept:
		r.code = make(map[uint64]*Instruction)
		fallthrough
	default:
		r.code[r.at] = &in
	}
	return &in
}

// onStack returns the place of n bytes on the stack; nil if an address is elsewhere.
func (r *run) onStack(at uint64, n int) []byte {
	if at < stackEnd-stackSize || at > stackEnd-uint64(n) {
		return nil
	}
	return r.stack[at-(stackEnd-stackSize):][:n]
}

// load returns the n bytes at an address, of the stack or the process.
func (r *run) load(at uint64, n int) uint64 {
	var b [8]byte
	if stack := r.onStack(at, n); stack != nil {
		copy(b[:], stack)
	} else if !r.Read(at, b[:n]) {
		r.fail(errReads)
	}
	for i := range b[:n] {
		if written, ok := r.written[at+uint64(i)]; ok {
			b[i] = written
		}
	}
	return binary.LittleEndian.Uint64(b[:])
}

// store writes to the stack or, for the rest of the call only, over the process's memory.
func (r *run) store(at, value uint64, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	switch stack := r.onStack(at, n); {
	case stack != nil:
		copy(stack, b[:])
		return
	case len(r.written)+n > maxWritten:
		r.fail(errWrites)
		return
	case r.written == nil:
		r.written = make(map[uint64]byte)
	}
	for i := range b[:n] {
		r.written[at+uint64(i)] = b[i]
	}
}

func (r *run) push(value uint64) {
	r.registers[RSP] -= 8
	r.store(r.registers[RSP], value, 8)
}

func (r *run) pop() uint64 {
	r.registers[RSP] += 8
	return r.load(r.registers[RSP]-8, 8)
}

// step executes one instruction.
func (r *run) step() {
	in := r.instruction()
	next := in.Next()
	switch in.Op {
	case x86asm.NOP:
	case x86asm.MOV, x86asm.MOVZX:
		r.set(in, 0, r.value(in, 1))
	case x86asm.MOVSX, x86asm.MOVSXD:
		r.set(in, 0, extend(r.value(in, 1), in.width(1)))
	case x86asm.LEA:
		m, _ := in.Args[1].(x86asm.Mem)
		r.set(in, 0, r.address(in, m))
	case x86asm.PUSH:
		r.push(r.value(in, 0))
	case x86asm.POP:
		r.set(in, 0, r.pop())
	case x86asm.LEAVE:
		r.registers[RSP] = r.registers[RBP]
		r.registers[RBP] = r.pop()
	case x86asm.JMP, x86asm.CALL:
		to, direct := in.Target()
		if !direct {
			to = r.value(in, 0)
		}
		if in.Op == x86asm.CALL {
			r.push(next)
		}
		next = r.target(to)
	case x86asm.RET:
		next = r.pop()
	default:
		name := in.Op.String()
		holds, known := r.condition(name)
		target, jumps := in.Target()
		switch {
		case !known:
			r.arithmetic(in)
		case jumps && holds:
			next = target
		case jumps:
		case name[0] == 'S': // set
			r.set(in, 0, truth(holds))
		default: // conditional move
			from := 0
			if holds {
				from = 1
			}
			r.set(in, 0, r.value(in, from))
		}
	}
	r.at = next
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// arithmetic executes an operation with flags.
func (r *run) arithmetic(in *Instruction) {
	size := in.width(0)
	a, b := r.value(in, 0), uint64(1)
	if in.Args[1] != nil {
		b = r.value(in, 1)
	}
	mask, top := masks(size)
	b &= mask
	result, carry, overflow := uint64(0), false, false
	switch in.Op {
	case x86asm.ADD, x86asm.INC, x86asm.ADC:
		more := truth(r.carry && in.Op == x86asm.ADC)
		result = (a + b + more) & mask
		carry, overflow = result < a || more != 0 && result == a, (a^result)&(b^result)&top != 0
	case x86asm.SUB, x86asm.CMP, x86asm.DEC, x86asm.NEG, x86asm.SBB:
		if in.Op == x86asm.NEG {
			a, b = 0, a
		}
		less := truth(r.carry && in.Op == x86asm.SBB)
		result = (a - b - less) & mask
		carry, overflow = a < b || less != 0 && a == b, (a^b)&(a^result)&top != 0
	case x86asm.AND, x86asm.TEST:
		result = a & b
	case x86asm.OR:
		result = a | b
	case x86asm.XOR:
		result = a ^ b
	case x86asm.NOT:
		r.set(in, 0, ^a)
		return
	case x86asm.SHL, x86asm.SHR, x86asm.SAR:
		if b &= uint64(8*size - 1); b == 0 {
			return
		}
		switch in.Op {
		case x86asm.SHL:
			result, carry = a<<b&mask, a>>(uint64(8*size)-b)&1 != 0
		case x86asm.SHR:
			result, carry = a>>b, a>>(b-1)&1 != 0
		default:
			result, carry = uint64(int64(extend(a, size))>>b)&mask, a>>(b-1)&1 != 0
		}
	default:
		r.fail(in.errUnknown())
		return
	}
	if in.Op == x86asm.INC || in.Op == x86asm.DEC {
		carry = r.carry
	}
	r.zero, r.sign, r.carry, r.overflow = result == 0, result&top != 0, carry, overflow
	if in.Op != x86asm.CMP && in.Op != x86asm.TEST {
		r.set(in, 0, result)
	}
}

// condition reports whether the condition of a jump, a set or a conditional move holds.
func (r *run) condition(op string) (holds, known bool) {
	for _, prefix := range []string{"CMOV", "SET", "J"} {
		if rest, ok := strings.CutPrefix(op, prefix); ok {
			op = rest
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

func (in *Instruction) errUnknown() error {
	return fmt.Errorf("%s: no instruction of an accessor", in)
}

// width returns the bytes of an operand.
func (in *Instruction) width(arg int) int {
	if _, bytes, ok := Register(in.Args[arg]); ok {
		return bytes
	}
	if _, at, ok := in.Mem(); ok && at == arg && in.MemBytes > 0 && in.MemBytes <= 8 {
		return in.MemBytes
	}
	return 8
}

// address returns the address of an operand in memory.
func (r *run) address(in *Instruction, m x86asm.Mem) (at uint64) {
	at = uint64(m.Disp)
	if m.Segment != 0 {
		r.fail(errReads) // of the thread
	}
	if m.Base == x86asm.RIP {
		at += in.Next()
	} else {
		at += r.whole(in, m.Base)
	}
	return at + r.whole(in, m.Index)*uint64(m.Scale)
}

// whole returns a register of an address; 0 if there is none.
func (r *run) whole(in *Instruction, reg x86asm.Reg) uint64 {
	n, bytes, ok := Register(reg)
	switch {
	case ok && bytes == 8:
		return r.registers[n]
	case reg != 0:
		r.fail(in.errUnknown())
	}
	return 0
}

// value returns the value of an operand.
func (r *run) value(in *Instruction, arg int) uint64 {
	switch a := in.Args[arg].(type) {
	case x86asm.Reg:
		if n, bytes, ok := Register(a); ok {
			mask, _ := masks(bytes)
			return r.registers[n] >> shift(a) & mask
		}
	case x86asm.Imm:
		mask, _ := masks(in.width(0))
		return uint64(a) & mask
	case x86asm.Mem:
		return r.load(r.address(in, a), in.width(arg))
	}
	r.fail(in.errUnknown())
	return 0
}

// set sets an operand.
func (r *run) set(in *Instruction, arg int, value uint64) {
	switch a := in.Args[arg].(type) {
	case x86asm.Reg:
		n, bytes, ok := Register(a)
		mask, _ := masks(max(bytes, 1))
		switch {
		case !ok:
			r.fail(in.errUnknown())
		case bytes >= 4: // the upper half becomes 0
			r.registers[n] = value & mask
		default:
			r.registers[n] = r.registers[n]&^(mask<<shift(a)) | value&mask<<shift(a)
		}
	case x86asm.Mem:
		r.store(r.address(in, a), value, in.width(arg))
	default:
		r.fail(in.errUnknown())
	}
}

// shift is by how many bits a register begins later than the whole one.
func shift(r x86asm.Reg) int {
	if isHigh(r) {
		return 8
	}
	return 0
}
