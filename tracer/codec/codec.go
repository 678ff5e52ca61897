// Package codec writes and reads the values of recordings: of their events and checkpoints.
// It is not part of ttmem's Go library: it changes without notice.
package codec

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"ttmem/tracer/event"
)

// A Codec writes values, or reads them in the same order, so that one description of a struct's
// fields does both. Numbers are varints. Strings and stacks get a number when they first occur.
//
// When a reading Codec meets invalid data, it sets Bad and returns zeros from then on.
type Codec struct {
	Reads bool
	Bad   bool
	// Data is the written data, or the data that is not read yet.
	Data []byte
	// Stacks are the written stacks by number, or all stacks of the recording that is read.
	Stacks []*event.Stack

	texts   map[string]int // for writing
	known   []string       // for reading; the first is empty
	bytes   int            // the length of all texts
	numbers map[uint64]int // of stacks, by ID; a nil stack has no number
}

// NewWriter returns a Codec that writes.
func NewWriter() *Codec {
	return &Codec{texts: map[string]int{"": 0}, numbers: make(map[uint64]int)}
}

// NewReader returns a Codec that reads what another one wrote.
func NewReader(b []byte, stacks []*event.Stack) *Codec {
	return &Codec{Reads: true, Data: b, known: []string{""}, Stacks: stacks}
}

// Fail marks the data as invalid.
func (c *Codec) Fail() { c.Bad, c.Data = true, nil }

// put writes a number.
func (c *Codec) put(v uint64) {
	if v < 0x80 {
		c.Data = append(c.Data, byte(v))
		return
	}
	c.Data = binary.AppendUvarint(c.Data, v)
}

// get reads a number.
func (c *Codec) get() uint64 {
	if len(c.Data) > 0 && c.Data[0] < 0x80 {
		v := c.Data[0]
		c.Data = c.Data[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.Data)
	if n <= 0 {
		c.Fail()
		return 0
	}
	c.Data = c.Data[n:]
	return v
}

// Uint writes or reads a number.
func (c *Codec) Uint(v *uint64) {
	if c.Reads {
		*v = c.get()
	} else {
		c.put(*v)
	}
}

// Uints writes or reads several numbers.
func (c *Codec) Uints(list ...*uint64) {
	for _, v := range list {
		c.Uint(v)
	}
}

// Delta writes or reads a number as its difference to another one, modulo 2^64.
func (c *Codec) Delta(v *uint64, from uint64) {
	if c.Reads {
		u := c.get()
		*v = from + (u>>1 ^ -(u & 1))
		return
	}
	d := int64(*v - from)
	c.put(uint64(d<<1) ^ uint64(d>>63))
}

// Number writes or reads a number of another type than uint64, within the range of the type.
func Number[T ~int | ~int32 | ~uint8 | ~uint16 | ~uint32](c *Codec, v *T) {
	u := uint64(*v)
	c.Delta(&u, 0)
	if c.Reads {
		if *v = T(u); uint64(*v) != u {
			c.Fail()
			*v = 0
		}
	}
}

// Below writes or reads a number that must be less than n.
func (c *Codec) Below(v *int, n int) {
	if !c.Reads {
		c.put(uint64(*v))
		return
	}
	u := c.get()
	if u >= uint64(n) {
		c.Fail()
		u = 0
	}
	*v = int(u)
}

// Bool writes or reads a flag.
func (c *Codec) Bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	c.Below(&n, 2)
	if c.Reads {
		*v = n == 1
	}
}

// Text writes or reads a string.
func (c *Codec) Text(s *string) {
	if !c.Reads {
		n, ok := c.texts[*s]
		if !ok {
			n = len(c.texts)
			c.texts[*s] = n
		}
		c.put(uint64(n))
		if !ok {
			c.put(uint64(len(*s)))
			c.Data = append(c.Data, *s...)
			c.bytes += len(*s)
		}
		return
	}
	var n int
	c.Below(&n, len(c.known)+1)
	if n == len(c.known) {
		length := c.Length(0)
		c.known = append(c.known, string(c.Data[:length]))
		c.Data = c.Data[length:]
		c.bytes += length
	}
	*s = c.known[n]
}

// Texts returns the number of different strings so far, and their total length.
func (c *Codec) Texts() (n, bytes int) { return max(len(c.texts), len(c.known)), c.bytes }

// Stack writes or reads a call stack; nil if it is not known.
func (c *Codec) Stack(s **event.Stack) {
	n := 0
	if c.Reads {
		*s = nil
	}
	if *s != nil {
		var ok bool
		if n, ok = c.numbers[(*s).ID]; !ok {
			c.Stacks = append(c.Stacks, *s)
			n = len(c.Stacks)
			c.numbers[(*s).ID] = n
		}
	}
	c.Below(&n, len(c.Stacks)+1)
	if c.Reads && n > 0 {
		*s = c.Stacks[n-1]
	}
}

// Length writes or reads the length of a list. Each of its values takes at least a byte.
func (c *Codec) Length(n int) int {
	c.Below(&n, math.MaxInt)
	if c.Reads && n > len(c.Data) {
		c.Fail()
		return 0
	}
	return n
}

// List writes or reads a list of any length; nil if it is empty.
func List[T any](c *Codec, l *[]T, each func(*T)) { ListUpTo(c, l, math.MaxInt, each) }

// ListUpTo is List for a list that has at most so many values. A value may take twenty times as much memory as data, so
// that a longer list is invalid before any is read.
func ListUpTo[T any](c *Codec, l *[]T, most int, each func(*T)) {
	n := c.Length(len(*l))
	if !c.Reads {
		for i := range *l {
			each(&(*l)[i])
		}
		return
	}
	if *l = nil; n > most {
		c.Fail()
		return
	}
	for range n {
		var v T
		if each(&v); c.Bad {
			return
		}
		*l = append(*l, v)
	}
}

// Table writes a map in order of its keys, or reads it into an empty map.
func Table[K cmp.Ordered, V any](c *Codec, m map[K]V, each func(*K, *V)) {
	var keys []K
	if !c.Reads {
		keys = slices.Sorted(maps.Keys(m))
	}
	List(c, &keys, func(k *K) {
		v := m[*k]
		if each(k, &v); c.Reads && !c.Bad {
			m[*k] = v
		}
	})
}

// Made returns the value to write, or allocates one to read into.
func Made[T any](c *Codec, p **T) *T {
	if c.Reads {
		*p = new(T)
	}
	return *p
}

// Maybe writes or reads a pointer that may be nil.
func Maybe[T any](c *Codec, p **T, each func(*T)) {
	there := *p != nil
	if c.Bool(&there); !there {
		return
	}
	each(Made(c, p))
}

// Once writes each value only once, even if several pointers lead to it.
type Once[T any] struct {
	Numbers map[*T]int // for writing
	List    []*T       // in order of their numbers
}

// Add gives a value the next number.
func (s *Once[T]) Add(v *T) {
	if s.Numbers == nil {
		s.Numbers = make(map[*T]int)
	}
	s.Numbers[v] = len(s.Numbers)
	s.List = append(s.List, v)
}

// One writes or reads a pointer to a value. At the first occurrence each writes or makes the
// value.
func (s *Once[T]) One(c *Codec, p **T, each func(**T)) {
	if !c.Reads {
		n, ok := s.Numbers[*p]
		if !ok {
			n = len(s.Numbers)
			s.Add(*p)
		}
		c.put(uint64(n))
		if !ok {
			each(p)
		}
		return
	}
	var n int
	if c.Below(&n, len(s.List)+1); n == len(s.List) {
		var v *T
		each(&v)
		s.List = append(s.List, v)
	}
	*p = s.List[n]
}
