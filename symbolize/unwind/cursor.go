package unwind

import "encoding/binary"

// cursor reads numbers from bytes. A read past their end returns 0 and sets bad.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

// take returns the next n bytes, nil if there are fewer.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)-c.at) {
		c.fail()
		return nil
	}
	b := c.b[c.at : c.at+int(n)]
	c.at += int(n)
	return b
}

func (c *cursor) fail() { c.bad, c.at = true, len(c.b) }

func (c *cursor) more() bool { return c.at < len(c.b) }

func (c *cursor) u8() uint8 {
	if c.at >= len(c.b) {
		c.bad = true
		return 0
	}
	v := c.b[c.at]
	c.at++
	return v
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// uleb reads an unsigned LEB128 number of up to 63 bits.
func (c *cursor) uleb() uint64 {
	if c.at < len(c.b) && c.b[c.at] < 0x80 { // nearly all have one byte
		v := c.b[c.at]
		c.at++
		return uint64(v)
	}
	v, _ := c.leb()
	return v
}

// sleb reads a signed LEB128 number of up to 63 bits.
func (c *cursor) sleb() int64 {
	v, bits := c.leb()
	if bits == 0 {
		return 0
	}
	return int64(v<<(64-bits)) >> (64 - bits)
}

// leb reads a LEB128 number and returns the number of its bits.
func (c *cursor) leb() (v uint64, bits uint) {
	for bits < 63 {
		b := c.u8()
		if c.bad {
			return 0, 0
		}
		v |= uint64(b&0x7f) << bits
		bits += 7
		if b < 0x80 {
			return v, bits
		}
	}
	c.fail()
	return 0, 0
}

// string reads a NUL-terminated string.
func (c *cursor) string() string {
	for i, b := range c.b[c.at:] {
		if b == 0 {
			s := c.b[c.at : c.at+i]
			c.at += i + 1
			return string(s)
		}
	}
	c.fail()
	return ""
}

// The encoding of a pointer (the DW_EH_PE_ constants): its format is in the low four bits,
// its base in the next three.
const (
	formatAbsolute = 0x00
	formatUdata2   = 0x02
	formatUdata4   = 0x03
	formatUdata8   = 0x04
	formatSdata2   = 0x0a
	formatSdata4   = 0x0b
	formatSdata8   = 0x0c
	formatMask     = 0x0f

	relativePC   = 0x10
	relativeData = 0x30
	relativeMask = 0xf0 // including the bit of an indirect pointer
)

// value reads a number in a pointer's format.
func (c *cursor) value(encoding uint8) uint64 {
	switch encoding & formatMask {
	case formatAbsolute, formatUdata8, formatSdata8:
		return c.u64()
	case formatUdata4:
		return uint64(c.u32())
	case formatSdata4:
		return uint64(int64(int32(c.u32())))
	case formatUdata2:
		return uint64(c.u16())
	case formatSdata2:
		return uint64(int64(int16(c.u16())))
	}
	c.fail() // the LEB128 formats are unused
	return 0
}

// pointer reads a pointer; addr is the virtual address of the cursor's first byte, data the
// base for the relation datarel.
func (c *cursor) pointer(encoding uint8, addr, data uint64) uint64 {
	here := addr + uint64(c.at)
	v := c.value(encoding)
	switch encoding & relativeMask {
	case 0:
	case relativePC:
		v += here
	case relativeData:
		v += data
	default:
		c.fail()
	}
	return v
}
