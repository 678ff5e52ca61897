package unwind

import "bytes"

// The operations of DWARF expressions that occur for the CFA.
const (
	opDeref      = 0x06
	opPlusUconst = 0x23
	opLit0       = 0x30
	opLit15      = 0x3f
	opAnd        = 0x1a
	opGe         = 0x2a
	opLit3       = 0x33
	opShl        = 0x24
	opPlus       = 0x22
	opBreg6      = 0x76 // rbp + n
	opBreg7      = 0x77 // rsp + n
	opBreg16     = 0x80 // rip + n
)

// parseCFA parses the three expressions that occur:
//   - for the stubs of a PLT, which push in their middle, by linkers;
//   - the word at a register plus an offset, perhaps plus another offset: by GCC for
//     functions that realign their stack, and by OpenSSL;
//   - a register plus an offset.
//
// offset is a Rule's CFAOffset.
func parseCFA(b []byte) (cfa CFA, offset int64, ok bool) {
	c := cursor{b: b}
	op := c.u8()
	n := c.sleb()
	if c.bad || op != opBreg6 && op != opBreg7 {
		return 0, 0, false
	}
	if !c.more() {
		if op == opBreg6 {
			return BP, n, true
		}
		return SP, n, true
	}
	switch c.u8() {
	case opBreg16:
		rest := c.b[c.at:]
		if op != opBreg7 || n != 8 || len(rest) != 8 {
			return 0, 0, false
		}
		pushed := int64(rest[3]) - opLit0
		stub := []byte{0, opLit15, opAnd, rest[3], opGe, opLit3, opShl, opPlus}
		return PLT, pushed, bytes.Equal(rest, stub) && pushed >= 0 && pushed <= 16
	case opDeref:
		var add uint64
		if c.more() {
			if c.u8() != opPlusUconst {
				return 0, 0, false
			}
			add = c.uleb()
		}
		if c.bad || c.more() || n != int64(int16(n)) || add > 1<<15-1 {
			return 0, 0, false
		}
		cfa = DerefSP
		if op == opBreg6 {
			cfa = DerefBP
		}
		return cfa, int64(int32(uint32(uint16(n)) | uint32(add)<<16)), true
	}
	return 0, 0, false
}

// parseBP parses rbp + n as the place of the caller's rbp, which GCC writes for functions
// that realign their stack.
func parseBP(b []byte) (offset int16, ok bool) {
	c := cursor{b: b}
	op := c.u8()
	n := c.sleb()
	return int16(n), op == opBreg6 && !c.bad && !c.more() && n == int64(int16(n))
}
