package heap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// errInvalid means that an object is not of the expected type, or no longer exists, and errUnreadable
// that there is no memory at an address.
var (
	errInvalid    = errors.New("not a valid object")
	errUnreadable = errors.New("not readable")
)

func piecesOf(addresses []uint64, size int) []host.Piece {
	pieces := make([]host.Piece, len(addresses))
	data := make([]byte, len(addresses)*size)
	for i, at := range addresses {
		pieces[i] = host.Piece{Address: at, Data: data[i*size : (i+1)*size : (i+1)*size]}
	}
	return pieces
}

// word is the 8 bytes at an offset.
func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// elements is the number of elements between two pointers, as in a std::vector; false if it
// exceeds a bound or is not a whole number.
func elements(begin, end, size, bound uint64) (int, bool) {
	if end < begin || (end-begin)%size != 0 || (end-begin)/size > bound {
		return 0, false
	}
	return int((end - begin) / size), true
}

// objects reads the objects of a library in the memory of a process, by the names of their
// fields. After an error all reads return zeros, so that err is checked once after a group
// of reads.
type objects struct {
	memory host.Memory
	fields map[string]layout.Chain
	err    error
}

// invalid ends reading, because an object is not valid.
func (o *objects) invalid() {
	if o.err == nil {
		o.err = errInvalid
	}
}

// knows reports whether the layout has all these fields.
func (o *objects) knows(names ...string) bool {
	for _, name := range names {
		if len(o.fields[name]) == 0 {
			return false
		}
	}
	return true
}

// read reads n bytes; nil after an error.
func (o *objects) read(at uint64, n int) []byte {
	if o.err != nil || n == 0 { // the address of an empty vector is meaningless
		return nil
	}
	p := piecesOf([]uint64{at}, n)
	if o.err = o.memory.Read(p); o.err == nil && !p[0].OK {
		o.err = fmt.Errorf("reading %d bytes at %#x: %w", n, at, errUnreadable)
	}
	if o.err != nil {
		return nil
	}
	return p[0].Data
}

// word reads 8 bytes.
func (o *objects) word(at uint64) uint64 {
	if raw := o.read(at, 8); raw != nil {
		return word(raw, 0)
	}
	return 0
}

// at returns the address of a field of an object.
func (o *objects) at(object uint64, field string) uint64 {
	c := o.fields[field]
	if len(c) == 0 {
		o.invalid()
		return 0
	}
	for _, offset := range c[:len(c)-1] {
		object = o.word(object + uint64(offset))
	}
	return object + uint64(c[len(c)-1])
}

func (o *objects) u64(object uint64, field string) uint64 { return o.word(o.at(object, field)) }

func (o *objects) u32(object uint64, field string) uint64 {
	if raw := o.read(o.at(object, field), 4); raw != nil {
		return uint64(binary.LittleEndian.Uint32(raw))
	}
	return 0
}

// flag reads a bool.
func (o *objects) flag(object uint64, field string) bool {
	raw := o.read(o.at(object, field), 1)
	if raw != nil && raw[0] > 1 {
		o.invalid()
	}
	return raw != nil && raw[0] != 0
}

// span is a std::vector's begin and end.
type span struct{ begin, end uint64 }

func (o *objects) span(object uint64, field string) span { return o.spanAt(o.at(object, field)) }

func (o *objects) spanAt(at uint64) (s span) {
	if raw := o.read(at, 16); raw != nil {
		s = span{word(raw, 0), word(raw, 8)}
	}
	if s.end < s.begin {
		o.invalid()
		return span{}
	}
	return s
}

// elements reads the elements of a std::vector, at most limit, of some bytes each.
func (o *objects) elements(s span, bytes, limit uint64) []byte {
	n, ok := elements(s.begin, s.end, bytes, limit)
	if !ok {
		o.invalid()
	}
	return o.read(s.begin, n*int(bytes))
}

// words reads the elements of a std::vector, at most limit, of n words each.
func (o *objects) words(s span, n, limit int) [][]uint64 {
	raw := o.elements(s, uint64(n*8), uint64(limit))
	list := make([][]uint64, 0, len(raw)/(n*8))
	for len(raw) > 0 {
		element := make([]uint64, n)
		for i := range element {
			element[i], raw = word(raw, 0), raw[8:]
		}
		list = append(list, element)
	}
	return list
}

// Bounds that reject implausible programs and cores.
const (
	maxProgramCBs    = 1 << 14
	maxProgramRanges = 1 << 14
	maxCoreRanges    = 1 << 12
	// maxCoord exceeds the number of cores in a row of any chip, and maxL1 the L1 of any
	// core.
	maxCoord = 1 << 10
	maxL1    = 1 << 28
)

// coreRanges reads a vector of CoreRanges.
func (o *objects) coreRanges(s span) []event.CoreRange {
	words := o.words(s, rangeBytes/8, maxCoreRanges)
	ranges := make([]event.CoreRange, len(words))
	for i, w := range words {
		if w[0] > w[2] || w[1] > w[3] || w[2] > maxCoord || w[3] > maxCoord {
			o.invalid()
			return nil
		}
		ranges[i] = event.CoreRange{X0: uint16(w[0]), Y0: uint16(w[1]), X1: uint16(w[2]), Y1: uint16(w[3])}
	}
	return ranges
}
