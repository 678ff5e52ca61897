package unwind

import (
	"bytes"
	"encoding/binary"
)

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

// number reads n bytes.
func (c *cursor) number(n uint64) uint64 {
	var b [8]byte
	copy(b[:], c.take(n))
	return binary.LittleEndian.Uint64(b[:])
}

func (c *cursor) u16() uint16 { return uint16(c.number(2)) }
func (c *cursor) u32() uint32 { return uint32(c.number(4)) }
func (c *cursor) u64() uint64 { return c.number(8) }

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
	return int64(v<<(64-bits)) >> (64 - bits)
}

// leb reads a LEB128 number and returns the number of its bits.
func (c *cursor) leb() (v uint64, bits int) {
	v, n := binary.Uvarint(c.b[c.at:])
	if n <= 0 || n > 9 {
		c.fail()
		return 0, 0
	}
	c.at += n
	return v, n * 7
}

// string reads a NUL-terminated string.
func (c *cursor) string() string {
	n := bytes.IndexByte(c.b[c.at:], 0)
	if n < 0 {
		c.fail()
		return ""
	}
	return string(c.take(uint64(n + 1))[:n])
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
