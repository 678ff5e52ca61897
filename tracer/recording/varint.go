package recording

import (
	"encoding/binary"
	"math/bits"
)

// zigzag encodes small signed numbers as small unsigned ones.
func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func appendUvarint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return binary.AppendUvarint(b, v)
}

// appendDelta appends the difference of two numbers, modulo 2^64.
func appendDelta(b []byte, v, from uint64) []byte {
	return appendUvarint(b, zigzag(int64(v-from)))
}

// appendString appends the length of s and s, truncated to maxString.
func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), maxString)]
	return append(appendUvarint(b, uint64(len(s))), s...)
}

// A cursor reads what the append functions wrote. At anything else it becomes bad, and
// returns zeros from then on.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

func (c *cursor) fail() { c.bad, c.i = true, len(c.b) }

// done reports whether everything was read.
func (c *cursor) done() bool { return c.i >= len(c.b) }

func (c *cursor) uvarint() uint64 {
	if c.i < len(c.b) && c.b[c.i] < 0x80 {
		c.i++
		return uint64(c.b[c.i-1])
	}
	v, n := binary.Uvarint(c.b[c.i:])
	if n <= 0 {
		c.fail()
		return 0
	}
	c.i += n
	return v
}

func (c *cursor) varint() int64 { return unzigzag(c.uvarint()) }

// delta reads a number that appendDelta wrote.
func (c *cursor) delta(from uint64) uint64 { return from + uint64(c.varint()) }

// below reads a number that must be less than n.
func (c *cursor) below(n int) int {
	v := c.uvarint()
	if v >= uint64(n) {
		c.fail()
		return 0
	}
	return int(v)
}

// uint reads a number of at most n bits.
func (c *cursor) uint(n int) uint64 {
	v := c.uvarint()
	if bits.Len64(v) > n {
		c.fail()
		return 0
	}
	return v
}

// bytes reads a length and that many bytes.
func (c *cursor) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)-c.i) {
		c.fail()
		return nil
	}
	c.i += int(n)
	return c.b[c.i-int(n) : c.i]
}
