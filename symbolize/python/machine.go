package python

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// reference is an address in the file that an instruction uses.
type reference struct {
	addr uint64
	// load is set if a value of four bytes is read there, rather than the address taken.
	load bool
}

// maxCode bounds the bytes of a function that are decoded. The functions of interest do
// their work in the first few instructions.
const maxCode = 192

// endbr64 begins functions in Ubuntu's builds, and is unknown to x86asm.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// references returns the addresses that a short function takes or reads from, in order:
// relative to the instruction pointer, as constants, or as offsets from the value in a
// symbol's slot. It stops at an undecodable instruction.
func references(e *symbolize.ELF, f symbolize.Symbol) []reference {
	code, err := e.Text(f.Addr, int(min(f.Size, maxCode)))
	if err != nil {
		return nil
	}
	var found []reference
	symbols := map[x86asm.Reg]uint64{} // registers with a symbol's address
	for pc := f.Addr; len(code) > 0; {
		if bytes.HasPrefix(code, endbr64) {
			code, pc = code[len(endbr64):], pc+uint64(len(endbr64))
			continue
		}
		// x86asm decodes VEX instructions as the ones that formerly had their code
		if code[0] == 0xc4 || code[0] == 0xc5 {
			return found
		}
		i, err := x86asm.Decode(code, 64)
		if err != nil || i.Len == 0 || i.Len > len(code) {
			return found
		}
		code, pc = code[i.Len:], pc+uint64(i.Len)
		to, _ := i.Args[0].(x86asm.Reg)
		if i.Op == x86asm.CALL {
			// after a call the address is only in callee-saved registers
			for _, r := range []x86asm.Reg{x86asm.RAX, x86asm.RCX, x86asm.RDX, x86asm.RSI, x86asm.RDI,
				x86asm.R8, x86asm.R9, x86asm.R10, x86asm.R11} {
				delete(symbols, r)
			}
			continue
		}
		addr, ok := referred(i, pc, symbols)
		if to != 0 && (i.Op == x86asm.MOV || i.Op == x86asm.LEA) {
			delete(symbols, to)
		}
		if !ok {
			continue
		}
		if i.Op == x86asm.MOV && i.DataSize == 64 && to != 0 {
			if name, ok := e.Slot(addr); ok {
				if s, ok := e.Lookup(name); ok {
					symbols[to] = s.Addr
					addr = s.Addr
				}
			}
		} else if i.Op == x86asm.LEA && to != 0 {
			symbols[to] = addr
		}
		_, constant := i.Args[1].(x86asm.Imm)
		found = append(found, reference{addr, i.Op == x86asm.MOV && i.DataSize == 32 && !constant})
	}
	return found
}

// referred returns the address that is an operand of an instruction; pc is the address of
// the next instruction.
func referred(i x86asm.Inst, pc uint64, symbols map[x86asm.Reg]uint64) (uint64, bool) {
	for _, arg := range i.Args {
		switch a := arg.(type) {
		case x86asm.Mem:
			// displacements are signed, which x86asm ignores
			displacement := uint64(int64(int32(a.Disp)))
			if a.Index != 0 {
				continue
			}
			switch base, ok := symbols[a.Base]; {
			case a.Base == x86asm.RIP:
				return pc + displacement, true
			case a.Base == 0 && a.Segment == 0:
				return displacement, true
			case ok:
				return base + displacement, true
			}
		case x86asm.Imm:
			// programs that are loaded at their link address
			if i.Op == x86asm.MOV && a > 0 {
				return uint64(a), true
			}
		}
	}
	return 0, false
}

// findKey returns the offset of autoTSSkey in _PyRuntime. It derives it from the code of
// PyGILState_GetThisThreadState, which passes the key's address to functions that test and read
// it. If those are inlined, the code reads the key's second half as the pthread key. If the
// result contradicts the table of versions, it is accepted only if the other offsets do not come
// from that table (moved).
func findKey(e *symbolize.ELF, runtime symbolize.Symbol, known uint64, moved bool) (uint64, error) {
	const pthreadKey = 4 // after the i32 that is 1 once the key exists
	f, ok := e.Lookup("PyGILState_GetThisThreadState")
	if !ok {
		return 0, fmt.Errorf("no symbol PyGILState_GetThisThreadState")
	}
	var taken, seen []uint64
	for _, r := range references(e, f) {
		offset := r.addr - runtime.Addr
		if r.addr < runtime.Addr || offset >= runtime.Size || offset == 0 {
			continue
		}
		seen = append(seen, offset)
		switch {
		case r.load && offset >= pthreadKey:
			seen = append(seen, offset-pthreadKey)
		case !r.load && offset%4 == 0:
			taken = append(taken, offset)
		}
	}
	switch {
	case len(seen) == 0 || slices.Contains(seen, known):
		// Without a reference, use the table; the kernel side checks the key.
		return known, nil
	case moved && len(taken) > 0:
		return taken[0], nil
	}
	return 0, fmt.Errorf("autoTSSkey is at one of %v in _PyRuntime, not at %d: unknown layout", seen, known)
}
