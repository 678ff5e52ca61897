package x86

import (
	"fmt"
	"slices"
	"strings"
)

// Chain is the loads that lead from an object to a field: every element but the last is
// added and dereferenced, the last is added. {0x10, 0x40} is the address
// *(object+0x10)+0x40.
type Chain []int32

// String formats the chain as `0x10+0x40`.
func (c Chain) String() string {
	parts := make([]string, len(c))
	for i, offset := range c {
		parts[i] = fmt.Sprintf("%#x", offset)
	}
	return strings.Join(parts, "+")
}

// Plus returns the chain to the place this many bytes later.
func (c Chain) Plus(bytes int32) Chain {
	c = slices.Clone(c)
	c[len(c)-1] += bytes
	return c
}

// Root is the origin of a value.
type Root uint8

const (
	// Unknown values may be anything.
	Unknown Root = iota
	// Constant is the number Value.ID, which may be an address in the file.
	Constant
	// Constant8 is an 8-bit number in the low byte; the rest is unknown.
	Constant8
	// Argument is the argument of number Value.ID, 0 to 5.
	Argument
	// Frame is the stack pointer at the function's entry.
	Frame
	// Global is the content of the address Value.ID in the file.
	Global
	// Entry is an element of the table of words at the address Value.ID.
	Entry
	// Counter is the result of the `lock xadd` at the address Value.ID.
	Counter
)

// maxPath bounds the length of a path of loads.
const maxPath = 6

// Value is the known content of a register: a root, and a path of loads from it. The path of n
// elements is a Chain: all but the last are added and dereferenced, the last is added.
type Value struct {
	Root Root
	n    int8
	path [maxPath]int32
	ID   uint64
}

// Rooted returns the value of a root.
func Rooted(r Root, id uint64) Value { return Value{Root: r, n: 1, ID: id} }

func number(n int64) Value { return Value{Root: Constant, ID: uint64(n)} }

// Plus is the value with a constant added.
func (v Value) Plus(n int64) Value {
	switch {
	case v.Root == Constant:
		v.ID += uint64(n)
	case v.n > 0 && n == int64(int32(n)):
		v.path[v.n-1] += int32(n)
	default:
		return Value{}
	}
	return v
}

// Load returns the content at the address that the value holds.
func (v Value) Load() Value {
	switch {
	case v.Root == Constant:
		return Rooted(Global, v.ID)
	case v.n == 0 || v.n == maxPath || v.Root == Frame:
		return Value{}
	}
	v.n++
	return v
}

// InFrame is the place in the frame that the value points to.
func (v Value) InFrame() (at int32, ok bool) { return v.path[0], v.Root == Frame && v.n == 1 }

// InGlobal is the distance between the value and the content of the address v.ID in the file.
func (v Value) InGlobal() (distance int32, ok bool) { return v.path[0], v.Root == Global && v.n == 1 }

// Chain returns the path from an argument to the place that the value points to.
func (v Value) Chain(arg uint64) (Chain, bool) {
	if v.Root != Argument || v.ID != arg {
		return nil, false
	}
	return append(Chain{}, v.path[:v.n]...), true
}

// Loaded is the path from an argument to the location that the value was loaded from.
func (v Value) Loaded(arg uint64) (Chain, bool) {
	c, ok := v.Chain(arg)
	if !ok || len(c) < 2 || c[len(c)-1] != 0 {
		return nil, false
	}
	return c[:len(c)-1], true
}

// slot is a value stored in the stack frame.
type slot struct {
	at    int32
	bytes int32
	value Value
}

// maxSlots bounds the known slots of a frame.
const maxSlots = 96

// State is the known content of registers and frame before an instruction.
type State struct {
	Regs [16]Value
	// slots are the known parts of the frame, in no order.
	slots []slot
	// escaped is the lowest part of the frame whose address was taken: code elsewhere may
	// write from there on.
	escaped int32
}

// Arguments are the registers of the calling convention.
var Arguments = [...]int{RDI, RSI, RDX, RCX, R8, R9}

const nothingEscaped = 1<<31 - 1

func entryState() *State {
	s := &State{escaped: nothingEscaped}
	for i, r := range Arguments {
		s.Regs[r] = Rooted(Argument, uint64(i))
	}
	s.Regs[RSP] = Rooted(Frame, 0)
	return s
}

// Arg is an argument of a function that is called.
func (s *State) Arg(n int) Value { return s.Regs[Arguments[n]] }

// merge drops the facts on which the two states differ, and reports whether it dropped any.
func (s *State) merge(with *State) (changed bool) {
	for i := range s.Regs {
		if s.Regs[i] != with.Regs[i] && s.Regs[i].Root != Unknown {
			s.Regs[i] = Value{}
			changed = true
		}
	}
	known := len(s.slots)
	s.drop(func(have slot) bool {
		v, ok := with.slot(have.at, have.bytes)
		return !ok || v != have.value
	})
	changed = changed || len(s.slots) != known
	if with.escaped < s.escaped {
		s.escaped, changed = with.escaped, true
	}
	return changed
}

// slot is the value stored at a place in the frame.
func (s *State) slot(at, bytes int32) (Value, bool) {
	for _, have := range s.slots {
		if have.at == at && bytes <= have.bytes {
			return have.value, true
		}
	}
	return Value{}, false
}

// Content is the value of some bytes in the frame.
func (s *State) Content(at Value, bytes int) (v Value) {
	if place, ok := at.InFrame(); ok {
		v, _ = s.slot(place, int32(bytes))
	}
	return v
}

// drop drops slots. They are copied: states share them.
func (s *State) drop(dropped func(slot) bool) {
	s.slots = slices.DeleteFunc(slices.Clone(s.slots), dropped)
}

// forget drops the known content of a part of the frame.
func (s *State) forget(from, to int64) {
	s.drop(func(have slot) bool { return from < int64(have.at)+int64(have.bytes) && int64(have.at) < to })
}

// expose drops the parts of the frame that code elsewhere may have written. It keeps a copy of
// the first argument: that is `this`, or the address of the result, which C++ code cannot change.
func (s *State) expose() {
	if s.escaped != nothingEscaped {
		s.drop(func(have slot) bool { return have.at+have.bytes > s.escaped && have.value != Rooted(Argument, 0) })
	}
}

// escape notes that the address of a part of the frame may become known elsewhere.
func (s *State) escape(v Value) {
	if at, ok := v.InFrame(); ok {
		s.escaped = min(s.escaped, at)
	}
}

// store records that bytes were stored at an address.
func (s *State) store(to Value, bytes int, v Value) {
	at, ok := to.InFrame()
	if !ok {
		if to.Root == Unknown {
			s.expose()
		}
		return
	}
	s.forget(int64(at), int64(at)+int64(bytes))
	if v.Root != Unknown && v.Root != Constant8 && bytes >= 4 && len(s.slots) < maxSlots {
		s.slots = append(s.slots, slot{at, int32(bytes), v})
	}
}
