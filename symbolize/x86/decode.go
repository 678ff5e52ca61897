// Package x86 decodes machine code of x86-64, follows the values in a function's registers and stack
// frame on all its paths, and runs short functions on a copy of a process's memory.
// It is not part of ttmem's Go library: it changes without notice.
package x86

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/arch/x86/x86asm"
)

// The numbers of the general registers in instructions.
const (
	RAX = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
)

// An Instruction is one decoded machine instruction. Displacements of its operands have their sign.
type Instruction struct {
	x86asm.Inst
	At uint64
	// Vector marks an AVX or BMI instruction: Args[0] is its memory operand, if any, and clobbers are
	// the general registers that it may write.
	Vector   bool
	clobbers uint16
}

// Next is the address of the following instruction.
func (in *Instruction) Next() uint64 { return in.At + uint64(in.Len) }

// Target is the destination of a direct jump or call.
func (in *Instruction) Target() (uint64, bool) {
	rel, ok := in.Args[0].(x86asm.Rel)
	return in.Next() + uint64(int64(rel)), ok
}

// Mem is the memory operand and its position.
func (in *Instruction) Mem() (x86asm.Mem, int, bool) {
	for i, a := range in.Args {
		if m, ok := a.(x86asm.Mem); ok {
			return m, i, true
		}
	}
	return x86asm.Mem{}, 0, false
}

// Register is the number of a general register and its width in bytes.
func Register(arg x86asm.Arg) (n, bytes int, ok bool) {
	r, ok := arg.(x86asm.Reg)
	switch {
	case !ok:
	case r >= x86asm.RAX && r <= x86asm.R15:
		return int(r - x86asm.RAX), 8, true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return int(r - x86asm.EAX), 4, true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return int(r - x86asm.AX), 2, true
	case r >= x86asm.AL && r <= x86asm.BL:
		return int(r - x86asm.AL), 1, true
	case isHigh(r):
		return int(r - x86asm.AH), 1, true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return int(r-x86asm.SPB) + RSP, 1, true
	}
	return 0, 0, false
}

// isHigh reports whether a register is the second byte of another one.
func isHigh(r x86asm.Reg) bool { return r >= x86asm.AH && r <= x86asm.BH }

// Jumps reports whether an instruction is a conditional jump. Operations are numbered in
// alphabetical order.
func (in *Instruction) Jumps() bool {
	return in.Op >= x86asm.JA && in.Op <= x86asm.JS && in.Op != x86asm.JMP || in.JumpsByCount()
}

// JumpsByCount reports whether an instruction is a jump that depends on rcx and not on the flags.
func (in *Instruction) JumpsByCount() bool {
	switch in.Op {
	case x86asm.LOOP, x86asm.LOOPE, x86asm.LOOPNE, x86asm.JCXZ, x86asm.JECXZ, x86asm.JRCXZ:
		return true
	}
	return false
}

var errDecode = errors.New("undecodable instruction")

var (
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	// tlsCall is the padded form of a call to __tls_get_addr.
	tlsCall = []byte{0x66, 0x66, 0x48, 0xe8}
)

// Decode decodes one instruction. x86asm does not know endbr64 and AVX: it takes their prefixes
// for instructions that do not exist in 64-bit code. Nor does it extend displacements of 4 bytes.
func Decode(code []byte, at uint64) (in Instruction, err error) {
	in.At = at
	switch {
	case len(code) == 0 || code[0] == 0x62: // AVX-512
		return in, errDecode
	case bytes.HasPrefix(code, endbr64):
		in.Op, in.Len = x86asm.NOP, len(endbr64)
		return in, nil
	case bytes.HasPrefix(code, tlsCall) && len(code) >= 8:
		in.Op, in.Len = x86asm.CALL, 8
		in.Args[0] = x86asm.Rel(int32(binary.LittleEndian.Uint32(code[4:])))
		return in, nil
	case code[0] == 0xc4 || code[0] == 0xc5:
		return in, in.decodeVEX(code)
	}
	if in.Inst, err = x86asm.Decode(code, 64); err != nil || in.Len <= 0 || in.Op == 0 {
		return in, errDecode
	}
	if m, n, ok := in.Mem(); ok && m.Disp>>32 == 0 {
		m.Disp = int64(int32(m.Disp))
		in.Args[n] = m
	}
	return in, nil
}

// MaxInstruction is the maximum length of an instruction.
const MaxInstruction = 15

// vexWide bounds the bytes that a vector instruction may access.
const vexWide = 32

// decodeVEX decodes an AVX or BMI instruction as far as needed to skip it: its length, its
// memory operand, and the general registers that it may write.
func (in *Instruction) decodeVEX(code []byte) error {
	in.Vector, in.MemBytes = true, vexWide
	if len(code) < 3 || code[0] == 0xc4 && len(code) < 4 {
		return errDecode
	}
	// the bits of the registers are inverted
	rxb, opcodes, vvvv, rest := ^code[1]>>5&4, byte(1), ^code[1]>>3&0xf, code[2:]
	if code[0] == 0xc4 {
		rxb, opcodes, vvvv, rest = ^code[1]>>5, code[1]&0x1f, ^code[2]>>3&0xf, code[3:]
	}
	opcode := rest[0]
	if opcodes == 1 && opcode == 0x77 { // vzeroupper, without operands
		in.Len = len(code) - len(rest) + 1
		return nil
	}
	// operands are encoded as those of movups
	const rex, movups = 0x40, 0x10
	legacy, err := Decode(append([]byte{rex | rxb, 0x0f, movups}, rest[1:min(len(rest), MaxInstruction)]...), in.At)
	if err != nil || legacy.Op != x86asm.MOVUPS || opcodes == 0 || opcodes > 3 {
		return errDecode
	}
	in.Len = len(code) - len(rest) + legacy.Len - 2
	if opcodes == 3 || opcodes == 1 && (opcode >= 0x70 && opcode <= 0x73 || opcode == 0xc2 || opcode >= 0xc4 && opcode <= 0xc6) {
		in.Len++ // a shuffle, shift or comparison by a constant
	}
	if in.Len > len(code) {
		return errDecode
	}
	register := func(arg x86asm.Arg) uint16 {
		if r, ok := arg.(x86asm.Reg); ok {
			return 1 << (r - x86asm.X0)
		}
		in.Args[0] = arg
		return 0
	}
	operands := register(legacy.Args[0]) | register(legacy.Args[1])
	if opcodes != 1 || bytes.IndexByte(vexToGeneral, opcode) >= 0 {
		in.clobbers = operands | 1<<vvvv | 1<<RCX // vpcmpistri
	}
	return nil
}

// vexToGeneral are the opcodes of the first map that write a general register: conversions,
// and moves of masks and words.
var vexToGeneral = []byte{0x2c, 0x2d, 0x50, 0x7e, 0x93, 0xc5, 0xd7}
