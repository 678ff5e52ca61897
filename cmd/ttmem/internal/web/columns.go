package web

import (
	"encoding/binary"
	"io"
)

// columns are numbers as the page has them: one column after the other, in little endian. A column
// of large numbers is two of 32 bits, the low halves and the high ones, because these compress
// well. A column with deltas has the difference to the number before.
type columns struct {
	out  io.Writer
	list []column
	buf  []byte
	err  error
}

// A column is described in the page's head.
type column struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	// Wide is true if the numbers have 64 bits.
	Wide  bool `json:"wide"`
	Delta bool `json:"delta"`
}

func (c *columns) write(value uint32) {
	c.buf = binary.LittleEndian.AppendUint32(c.buf, value)
	if len(c.buf) >= 1<<16 {
		c.flush()
	}
}

func (c *columns) flush() {
	if c.err == nil {
		_, c.err = c.out.Write(c.buf)
	}
	c.buf = c.buf[:0]
}

func (c *columns) narrow(name string, values []uint32, delta bool) {
	c.list = append(c.list, column{name, len(values), false, delta})
	before := uint32(0)
	for _, v := range values {
		c.write(v - before)
		if delta {
			before = v
		}
	}
	c.flush()
}

func (c *columns) wide(name string, values []uint64, delta bool) {
	c.list = append(c.list, column{name, len(values), true, delta})
	for shift := 0; shift < 64; shift += 32 {
		before := uint64(0)
		for _, v := range values {
			c.write(uint32((v - before) >> shift))
			if delta {
				before = v
			}
		}
	}
	c.flush()
}
