package aggregate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"

	"ttmem/tracer/event"
)

// A codec writes values, or reads what a codec wrote, in the same order: one description
// of the fields of a struct does both. Numbers are varints. Strings and stacks are
// numbered when they first come.
//
// After something that makes no sense a codec that reads is bad, and gives zeros.
type codec struct {
	reads bool
	// b is what was written, or what is left to be read.
	b   []byte
	bad bool

	texts map[string]int // written
	known []string       // read; the empty one comes first
	// stacks are those that were written, by number, or all that may be read.
	stacks  []*event.Stack
	numbers map[uint64]int // of stacks, by ID; a stack without a number is nil
}

var errState = errors.New("the checkpoint makes no sense")

func newCodec() *codec {
	return &codec{texts: map[string]int{"": 0}, numbers: make(map[uint64]int)}
}

// codecOf reads what a codec wrote.
func codecOf(b []byte, stacks []*event.Stack) *codec {
	return &codec{reads: true, b: b, known: []string{""}, stacks: stacks}
}

func (c *codec) fail() { c.bad, c.b = true, nil }

func (c *codec) uint(v *uint64) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n := 0
	if *v, n = binary.Uvarint(c.b); n <= 0 {
		c.fail()
		*v = 0
		return
	}
	c.b = c.b[n:]
}

func (c *codec) uints(list ...*uint64) {
	for _, v := range list {
		c.uint(v)
	}
}

// delta is a number that is near another one, modulo 2^64.
func (c *codec) delta(v *uint64, from uint64) {
	d := int64(*v - from)
	u := uint64(d<<1) ^ uint64(d>>63)
	c.uint(&u)
	if c.reads {
		*v = from + (u>>1 ^ -(u & 1))
	}
}

// number is a number of any type but uint64. One that is not of the type is bad.
func number[T ~int | ~int32 | ~uint8 | ~uint16 | ~uint32](c *codec, v *T) {
	u := uint64(*v)
	c.delta(&u, 0)
	if c.reads {
		if *v = T(u); uint64(*v) != u {
			c.fail()
			*v = 0
		}
	}
}

// below is a number that must be less than n.
func (c *codec) below(v *int, n int) {
	u := uint64(*v)
	c.uint(&u)
	if c.reads {
		if u >= uint64(n) {
			c.fail()
			u = 0
		}
		*v = int(u)
	}
}

// region is a region with banks, or another one where any is true.
func (c *codec) region(v *event.Region, n event.Region) {
	r := int(*v)
	c.below(&r, int(n))
	*v = event.Region(r)
}

func (c *codec) bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	c.below(&n, 2)
	*v = n == 1
}

func (c *codec) text(s *string) {
	if !c.reads {
		n, ok := c.texts[*s]
		if !ok {
			n = len(c.texts)
			c.texts[*s] = n
		}
		c.b = binary.AppendUvarint(c.b, uint64(n))
		if !ok {
			c.b = append(binary.AppendUvarint(c.b, uint64(len(*s))), *s...)
		}
		return
	}
	var n int
	c.below(&n, len(c.known)+1)
	if n == len(c.known) {
		length := c.length(0)
		c.known = append(c.known, string(c.b[:length]))
		c.b = c.b[length:]
	}
	*s = c.known[n]
}

func (c *codec) stack(s **event.Stack) {
	n := 0
	if *s != nil {
		var ok bool
		if n, ok = c.numbers[(*s).ID]; !ok {
			c.stacks = append(c.stacks, *s)
			n = len(c.stacks)
			c.numbers[(*s).ID] = n
		}
	}
	c.below(&n, len(c.stacks)+1)
	if c.reads && n > 0 {
		*s = c.stacks[n-1]
	}
}

// length is the length of a list, each of whose values takes a byte at least.
func (c *codec) length(n int) int {
	c.below(&n, math.MaxInt)
	if c.reads && n > len(c.b) {
		c.fail()
		return 0
	}
	return n
}

// list is a list of any length; nil where it is empty.
func list[T any](c *codec, l *[]T, each func(*T)) {
	n := c.length(len(*l))
	if !c.reads {
		for i := range *l {
			each(&(*l)[i])
		}
		return
	}
	*l = nil
	for range n {
		var v T
		if each(&v); c.bad {
			return
		}
		*l = append(*l, v)
	}
}

// table is a map, in order of its keys. What it is read into is empty.
func table[K cmp.Ordered, V any](c *codec, m map[K]V, each func(*K, *V)) {
	var keys []K
	if !c.reads {
		keys = sortedKeys(m)
	}
	list(c, &keys, func(k *K) {
		v := m[*k]
		if each(k, &v); c.reads && !c.bad {
			m[*k] = v
		}
	})
}

// made is a value that there is, or that is made to be read.
func made[T any](c *codec, p **T) *T {
	if c.reads {
		*p = new(T)
	}
	return *p
}

// maybe is a pointer that may be nil.
func maybe[T any](c *codec, p **T, each func(*T)) {
	there := *p != nil
	if c.bool(&there); !there {
		return
	}
	each(made(c, p))
}

// once are values that several others point to: each is written once.
type once[T any] struct {
	numbers map[*T]int // written
	list    []*T       // read
}

// add gives a value the next number.
func (s *once[T]) add(v *T) {
	if s.numbers == nil {
		s.numbers = make(map[*T]int)
	}
	s.numbers[v] = len(s.numbers)
	s.list = append(s.list, v)
}

// one is a pointer to a value, which each writes or makes where it comes first.
func (s *once[T]) one(c *codec, p **T, each func(**T)) {
	if !c.reads {
		n, ok := s.numbers[*p]
		if !ok {
			n = len(s.numbers)
			s.add(*p)
		}
		c.b = binary.AppendUvarint(c.b, uint64(n))
		if !ok {
			each(p)
		}
		return
	}
	var n int
	if c.below(&n, len(s.list)+1); n == len(s.list) {
		var v *T
		each(&v)
		s.list = append(s.list, v)
	}
	*p = s.list[n]
}
