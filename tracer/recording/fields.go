package recording

import (
	"maps"
	"slices"
)

// Rare values are written as fields: a number with the field and its type, then the value.
// The number 0 ends them. A reader skips unknown fields.

// The types of fields.
const (
	typeUint   = 0 // an unsigned number
	typeInt    = 1 // a signed one
	typeText   = 2 // a length and that many bytes
	typeString = 3 // the number of a defined string
)

// field is a field that was read.
type field struct {
	number, kind int
	value        uint64
	text         []byte
}

func appendTag(b []byte, number, kind int) []byte {
	return appendUvarint(b, uint64(number)<<2|uint64(kind))
}

func appendUintField(b []byte, number int, v uint64) []byte {
	return appendUvarint(appendTag(b, number, typeUint), v)
}

func appendIntField(b []byte, number int, v int64) []byte {
	return appendUvarint(appendTag(b, number, typeInt), zigzag(v))
}

func appendTextField(b []byte, number int, s string) []byte {
	return appendString(appendTag(b, number, typeText), s)
}

// field reads the next field; its number is 0 after the last one.
func (c *cursor) field() (f field) {
	tag := c.uvarint()
	f.number, f.kind = int(tag>>2), int(tag&3)
	if tag>>2 == 0 || tag>>32 != 0 {
		if tag != 0 {
			c.fail()
		}
		f.number = 0
		return f
	}
	if f.kind == typeText {
		f.text = c.bytes()
	} else {
		f.value = c.uvarint()
	}
	if c.bad {
		f.number = 0
	}
	return f
}

// The fields of an end mark.
const (
	endHasStacks = 1 + iota
	endTaken
	endIncomplete // the cause; its count follows as endCount
	endPython
	endIncompletePython
	endCount
	endContinued
	endTime
)

func (e *End) append(b []byte) []byte {
	if e.HasStacks {
		b = appendUintField(b, endHasStacks, 1)
	}
	b = appendUintField(b, endTaken, e.Taken)
	b = appendUintField(b, endPython, e.Python)
	counts := func(number int, m map[string]uint64) {
		for _, cause := range slices.Sorted(maps.Keys(m)) {
			b = appendTextField(b, number, cause)
			b = appendUintField(b, endCount, m[cause])
		}
	}
	counts(endIncomplete, e.Incomplete)
	counts(endIncompletePython, e.IncompletePython)
	if e.Continued {
		b = appendUintField(b, endContinued, 1)
	}
	if e.TimeNs != 0 {
		b = appendUintField(b, endTime, e.TimeNs)
	}
	return appendUvarint(b, 0)
}

// readEnd reads an end mark, and reports whether it is valid.
func readEnd(b []byte) (e End, ok bool) {
	c := cursor{b: b}
	e.Incomplete, e.IncompletePython = map[string]uint64{}, map[string]uint64{}
	var counts map[string]uint64
	var cause string
	for f := c.field(); f.number != 0; f = c.field() {
		switch f.number {
		case endHasStacks:
			e.HasStacks = f.value != 0
		case endTaken:
			e.Taken = f.value
		case endPython:
			e.Python = f.value
		case endIncomplete:
			counts, cause = e.Incomplete, string(f.text)
		case endIncompletePython:
			counts, cause = e.IncompletePython, string(f.text)
		case endCount:
			if counts != nil {
				counts[cause] = f.value
			}
		case endContinued:
			e.Continued = f.value != 0
		case endTime:
			e.TimeNs = f.value
		}
	}
	if !e.HasStacks {
		e.Incomplete, e.IncompletePython = nil, nil
	}
	return e, !c.bad
}
