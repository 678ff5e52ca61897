package layout

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/arch/x86/x86asm"
)

// The numbers of the general registers in instructions.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
)

// instruction is one decoded machine instruction.
type instruction struct {
	at   uint64
	len  int
	op   x86asm.Op
	args x86asm.Args
	// bytes is the width of the memory operand, 0 if there is none.
	bytes int
	// vector marks an AVX or BMI instruction: clobbers are the general registers that it
	// may write, args[0] is its memory operand, if any.
	vector   bool
	clobbers uint16
}

// next is the address of the following instruction.
func (in *instruction) next() uint64 { return in.at + uint64(in.len) }

// target is the destination of a direct jump or call.
func (in *instruction) target() (uint64, bool) {
	rel, ok := in.args[0].(x86asm.Rel)
	return in.next() + uint64(int64(rel)), ok
}

// mem is the memory operand and its position.
func (in *instruction) mem() (x86asm.Mem, int, bool) {
	for i, a := range in.args {
		if m, ok := a.(x86asm.Mem); ok {
			return m, i, true
		}
	}
	return x86asm.Mem{}, 0, false
}

var errDecode = errors.New("undecodable instruction")

var (
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	// tlsCall is the padded form of a call to __tls_get_addr.
	tlsCall = []byte{0x66, 0x66, 0x48, 0xe8}
)

// decode decodes one instruction. x86asm does not know endbr64 and AVX. It takes their prefixes
// for instructions that do not exist in 64-bit code.
func decode(code []byte, at uint64) (instruction, error) {
	switch {
	case len(code) == 0:
		return instruction{}, errDecode
	case bytes.HasPrefix(code, endbr64):
		return instruction{at: at, len: 4, op: x86asm.NOP}, nil
	case bytes.HasPrefix(code, tlsCall) && len(code) >= 8:
		rel := x86asm.Rel(int32(binary.LittleEndian.Uint32(code[4:])))
		return instruction{at: at, len: 8, op: x86asm.CALL, args: x86asm.Args{rel}}, nil
	case code[0] == 0xc4 || code[0] == 0xc5:
		return decodeVEX(code, at)
	case code[0] == 0x62: // AVX-512
		return instruction{}, errDecode
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil || in.Len <= 0 || in.Op == 0 {
		return instruction{}, errDecode
	}
	return instruction{at: at, len: in.Len, op: in.Op, args: in.Args, bytes: in.MemBytes}, nil
}

// maxInstruction is the maximum length of an instruction.
const maxInstruction = 15

// vexWide bounds the bytes that a vector instruction may access.
const vexWide = 32

// decodeVEX decodes an AVX or BMI instruction as far as needed to skip it: its length, its
// memory operand, and the general registers that it may write.
func decodeVEX(code []byte, at uint64) (instruction, error) {
	in := instruction{at: at, vector: true, bytes: vexWide}
	if len(code) < 3 || code[0] == 0xc4 && len(code) < 4 {
		return in, errDecode
	}
	// the bits of the registers are inverted
	rxb, opcodes, vvvv, rest := ^code[1]>>5&4, byte(1), ^code[1]>>3&0xf, code[2:]
	if code[0] == 0xc4 {
		rxb, opcodes, vvvv, rest = ^code[1]>>5, code[1]&0x1f, ^code[2]>>3&0xf, code[3:]
	}
	opcode := rest[0]
	if opcodes == 1 && opcode == 0x77 { // vzeroupper, without operands
		in.len = len(code) - len(rest) + 1
		return in, nil
	}
	// operands are encoded as those of movups
	const rex, movups = 0x40, 0x10
	legacy, err := x86asm.Decode(append([]byte{rex | rxb, 0x0f, movups}, rest[1:min(len(rest), maxInstruction)]...), 64)
	if err != nil || legacy.Op != x86asm.MOVUPS || opcodes == 0 || opcodes > 3 {
		return in, errDecode
	}
	in.len = len(code) - len(rest) + legacy.Len - 2
	if opcodes == 3 || opcodes == 1 && (opcode >= 0x70 && opcode <= 0x73 || opcode == 0xc2 || opcode >= 0xc4 && opcode <= 0xc6) {
		in.len++ // a shuffle, shift or comparison by a constant
	}
	if in.len > len(code) {
		return in, errDecode
	}
	register := func(arg x86asm.Arg) uint16 {
		if r, ok := arg.(x86asm.Reg); ok {
			return 1 << (r - x86asm.X0)
		}
		in.args[0] = arg
		return 0
	}
	operands := register(legacy.Args[0]) | register(legacy.Args[1])
	if opcodes != 1 || bytes.IndexByte(vexToGeneral, opcode) >= 0 {
		in.clobbers = operands | 1<<vvvv | 1<<rcx // rcx: vpcmpistri
	}
	return in, nil
}

// vexToGeneral are the opcodes of the first map that write a general register: conversions,
// and moves of masks and words.
var vexToGeneral = []byte{0x2c, 0x2d, 0x50, 0x7e, 0x93, 0xc5, 0xd7}
