package heap

import (
	"encoding/binary"
	"fmt"

	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// Bounds that reject implausible programs.
const (
	maxProgramCBs    = 1 << 14
	maxProgramRanges = 1 << 14
	// sharedBytes is the size of a std::shared_ptr: the pointer, and its counts.
	sharedBytes = 16
	// maxCoord exceeds the number of cores in a row of any chip, and maxL1 the L1 of any
	// core.
	maxCoord = 1 << 10
	maxL1    = 1 << 28
)

// span is a std::vector's begin and end.
type span struct{ begin, end uint64 }

// programReader reads a process's objects. After an error all reads return 0.
type programReader struct {
	memory memory
	fields map[string]layout.Chain
	err    error
}

// knows reports whether all these fields are known.
func (r *programReader) knows(names ...string) bool {
	for _, name := range names {
		if len(r.fields[name]) == 0 {
			return false
		}
	}
	return true
}

// coreRanges reads CoreRanges.
func (r *programReader) coreRanges(s span) []event.CoreRange {
	words := r.words(s, rangeBytes/8, maxProgramRanges)
	ranges := make([]event.CoreRange, len(words))
	for i, w := range words {
		if w[0] > w[2] || w[1] > w[3] || w[2] > maxCoord || w[3] > maxCoord {
			r.fail()
			return nil
		}
		ranges[i] = event.CoreRange{X0: uint16(w[0]), Y0: uint16(w[1]), X1: uint16(w[2]), Y1: uint16(w[3])}
	}
	return ranges
}

// shared reads a vector of shared pointers.
func (r *programReader) shared(s span, limit int) []uint64 {
	words := r.words(s, sharedBytes/8, limit)
	objects := make([]uint64, len(words))
	for i, w := range words {
		objects[i] = w[0]
	}
	return objects
}

// words reads elements of n words, at most limit.
func (r *programReader) words(s span, n, limit int) [][]uint64 {
	bytes := uint64(n * 8)
	if s.end < s.begin || (s.end-s.begin)%bytes != 0 || (s.end-s.begin)/bytes > uint64(limit) {
		r.fail()
		return nil
	}
	raw := r.read(s.begin, int(s.end-s.begin))
	list := make([][]uint64, 0, len(raw)/int(bytes))
	for len(raw) > 0 {
		element := make([]uint64, n)
		for i := range element {
			element[i], raw = binary.LittleEndian.Uint64(raw), raw[8:]
		}
		list = append(list, element)
	}
	return list
}

// at is the address of a field of an object.
func (r *programReader) at(object uint64, field string) uint64 {
	c := r.fields[field]
	for _, offset := range c[:len(c)-1] {
		raw := r.read(object+uint64(offset), 8)
		if raw == nil {
			return 0
		}
		object = binary.LittleEndian.Uint64(raw)
	}
	return object + uint64(c[len(c)-1])
}

func (r *programReader) u64(object uint64, field string) uint64 {
	if raw := r.read(r.at(object, field), 8); raw != nil {
		return binary.LittleEndian.Uint64(raw)
	}
	return 0
}

func (r *programReader) u32(object uint64, field string) uint64 {
	if raw := r.read(r.at(object, field), 4); raw != nil {
		return uint64(binary.LittleEndian.Uint32(raw))
	}
	return 0
}

// flag reads a bool.
func (r *programReader) flag(object uint64, field string) bool {
	raw := r.read(r.at(object, field), 1)
	if raw != nil && raw[0] > 1 {
		r.fail()
	}
	return raw != nil && raw[0] != 0
}

func (r *programReader) span(object uint64, field string) span { return r.spanAt(r.at(object, field)) }

func (r *programReader) spanAt(at uint64) (s span) {
	if raw := r.read(at, 16); raw != nil {
		s = span{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
	}
	if s.end < s.begin {
		r.fail()
		return span{}
	}
	return s
}

func (r *programReader) fail() {
	if r.err == nil {
		r.err = errNotAProgram
	}
}

// read reads n bytes; nil after an error.
func (r *programReader) read(at uint64, n int) []byte {
	if r.err != nil || n == 0 {
		return nil
	}
	raw, err := readBytes(r.memory, at, n)
	if err != nil {
		r.err = fmt.Errorf("reading %d bytes at %w", n, err)
		return nil
	}
	return raw
}
