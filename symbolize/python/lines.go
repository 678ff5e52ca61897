package python

import "math"

// Code is the kernel side's copy of a code object.
type Code struct {
	// Minor is the x of CPython 3.x: the line tables differ.
	Minor int
	// Name is co_name, QualName co_qualname ("" on 3.10, which has none), File
	// co_filename.
	Name, QualName, File string
	// FirstLine is co_firstlineno.
	FirstLine int
	// LineTable is co_linetable as in memory.
	LineTable []byte
}

// notStarted is the offset of a frame that has executed nothing yet: one code unit before the
// first.
const notStarted = -codeUnit

// codeUnit is the size of an instruction without its inline caches, in bytes.
const codeUnit = 2

// Line returns the source line of the instruction at an offset from the first code byte, in
// bytes; 3.10's f_lasti counts code units and must be doubled. It is 0 if the table has no
// line for the instruction, or is malformed. A frame that has not started (offset -2) is at
// the first line, as in Python.
func (c *Code) Line(offset int) int {
	if offset == notStarted {
		return validLine(int64(c.FirstLine))
	}
	if offset < 0 {
		return 0
	}
	if c.Minor <= 10 {
		return pairLine(c.LineTable, int64(c.FirstLine), offset)
	}
	return locationLine(c.LineTable, int64(c.FirstLine), offset)
}

// validLine returns line if it fits into a C int and is positive, else 0.
func validLine(line int64) int {
	if line < 0 || line > math.MaxInt32 {
		return 0
	}
	return int(line)
}

// pairLine reads the table of 3.10 (PEP 626, Objects/lnotab_notes.txt): pairs of a number
// of code bytes and a line increment; -128 stands for code without a line.
func pairLine(table []byte, line int64, offset int) int {
	const noLine = -128
	end := 0
	for ; len(table) >= 2; table = table[2:] {
		end += int(table[0])
		delta := int8(table[1])
		if delta != noLine {
			line += int64(delta)
		}
		if offset < end {
			if delta == noLine {
				return 0
			}
			return validLine(line)
		}
	}
	return 0
}

// The kinds of an entry of the table of 3.11 and later (Objects/locations.md).
// The smaller ones, up to firstOneLine, are on the line of the entry before.
const (
	firstOneLine  = 10
	lastOneLine   = 12
	kindNoColumns = 13
	kindLong      = 14
	kindNone      = 15
)

// locationLine reads the table of 3.11 and later (PEP 657): an entry begins with a byte
// with the top bit set, which has its kind and its number of code units.
func locationLine(table []byte, line int64, offset int) int {
	end := 0
	for i := 0; i < len(table); {
		first := table[i]
		if first&0x80 == 0 {
			return 0
		}
		kind := first >> 3 & 15
		switch {
		case kind == kindNoColumns || kind == kindLong:
			delta, ok := signedVarint(table[i+1:])
			if !ok {
				return 0
			}
			line += delta
		case kind >= firstOneLine && kind <= lastOneLine:
			line += int64(kind - firstOneLine)
		}
		end += (int(first&7) + 1) * codeUnit
		if offset < end {
			if kind == kindNone {
				return 0
			}
			return validLine(line)
		}
		// skip the columns
		for i++; i < len(table) && table[i]&0x80 == 0; i++ {
		}
	}
	return 0
}

// signedVarint decodes the number at the start of b: groups of six bits, the lowest first,
// bit 6 set in all but the last; the lowest bit of all is the sign.
func signedVarint(b []byte) (int64, bool) {
	const maxGroups = 6 // 32 bits and the sign
	var n int64
	for i := 0; i < len(b) && i < maxGroups && b[i]&0x80 == 0; i++ {
		n |= int64(b[i]&0x3f) << (6 * i)
		if b[i]&0x40 == 0 {
			if n&1 != 0 {
				return -(n >> 1), true
			}
			return n >> 1, true
		}
	}
	return 0, false
}
