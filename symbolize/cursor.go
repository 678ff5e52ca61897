package symbolize

import "encoding/binary"

// cursor reads a section from one place on. It looks at the file through a
// window, so that a compilation unit of any size takes little memory. What cannot
// be read is 0, and bad is set from then on.
type cursor struct {
	s   *span
	at  uint64 // offset in the section
	end uint64 // where to stop
	bad bool

	window []byte
	start  uint64 // where window is in the section
	room   []byte // for windows of the file
}

// The first look is a short one: many cursors read a single entry.
const (
	firstWindow = 256
	windowSize  = 16 << 10
)

func (s *span) cursor(at, end uint64) *cursor {
	c := &cursor{s: s, at: at, end: min(end, s.size)}
	c.bad = at > c.end
	return c
}

// more reports whether something is left to read.
func (c *cursor) more() bool { return !c.bad && c.at < c.end }

// take is the next n bytes, nil if there are fewer. n is at most firstWindow.
func (c *cursor) take(n uint64) []byte {
	if c.bad || n > c.end-c.at || n > firstWindow {
		c.bad = true
		return nil
	}
	if c.at < c.start || c.at+n > c.start+uint64(len(c.window)) {
		if !c.fill() {
			return nil
		}
	}
	b := c.window[c.at-c.start:][:n]
	c.at += n
	return b
}

func (c *cursor) fill() bool {
	if c.s.memory != nil {
		c.window, c.start = c.s.memory, 0
		return true
	}
	switch len(c.room) {
	case 0:
		c.room = make([]byte, firstWindow)
	case firstWindow:
		c.room = make([]byte, windowSize)
	}
	b := c.room[:min(uint64(len(c.room)), c.s.size-c.at)]
	if n, _ := c.s.e.r.ReadAt(b, int64(c.s.offset+c.at)); n < len(b) {
		c.bad = true
		return false
	}
	c.window, c.start = b, c.at
	return true
}

func (c *cursor) skip(n uint64) {
	if c.bad || n > c.end-c.at {
		c.bad = true
		return
	}
	c.at += n
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint is an unsigned number of 1, 2, 3, 4 or 8 bytes.
func (c *cursor) uint(size uint64) uint64 {
	b := c.take(size)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 3:
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// maxLEB is how many bytes a LEB128 number may have: 64 bits and some padding.
const maxLEB = 16

// uleb is an unsigned LEB128 number; bits beyond the 64th are lost.
func (c *cursor) uleb() (n uint64) {
	for shift := uint(0); shift < 7*maxLEB; shift += 7 {
		b := c.u8()
		if shift < 64 {
			n |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			return n
		}
	}
	c.bad = true
	return 0
}

func (c *cursor) sleb() (n int64) {
	for shift := uint(0); shift < 7*maxLEB; {
		b := c.u8()
		if shift < 64 {
			n |= int64(b&0x7f) << shift
		}
		shift += 7
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift < 64 {
				n |= -1 << shift
			}
			return n
		}
	}
	c.bad = true
	return 0
}

// skipText goes behind the NUL that ends a string.
func (c *cursor) skipText() {
	for c.more() {
		if c.u8() == 0 {
			return
		}
	}
	c.bad = true
}

// length is the first field of a unit: its length without the field, and the
// size of offsets in it, 4 or 8 bytes (DWARF 5, 7.4).
func (c *cursor) length() (n, offset uint64) {
	n = c.uint(4)
	if n == 0xffffffff {
		return c.uint(8), 8
	}
	if n >= 0xfffffff0 {
		c.bad = true
	}
	return n, 4
}
