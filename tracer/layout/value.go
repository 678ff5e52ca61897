package layout

import (
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// root is the origin of a value.
type root uint8

const (
	// unknown values may be anything.
	unknown root = iota
	// constant is the number value.id, which may be an address in the file.
	constant
	// constant8 is an 8-bit number in the low byte; the rest is unknown.
	constant8
	// argument is the argument of number value.id, 0 to 5.
	argument
	// frame is the stack pointer at the function's entry.
	frame
	// global is the content of the address value.id in the file.
	global
	// entry is an element of the table of words at the address value.id.
	entry
	// counter is the result of the `lock xadd` at the address value.id.
	counter
)

// maxPath bounds the length of a path of loads.
const maxPath = 6

// value is the known content of a register: a root, and a path of loads from it. The path of n
// elements is a Chain: all but the last are added and dereferenced, the last is added.
type value struct {
	root root
	n    int8
	path [maxPath]int32
	id   uint64
}

func rooted(r root, id uint64) value { return value{root: r, n: 1, id: id} }

func number(n int64) value { return value{root: constant, id: uint64(n)} }

// plus is the value with a constant added.
func (v value) plus(n int64) value {
	switch {
	case v.root == constant:
		v.id += uint64(n)
	case v.n > 0 && n == int64(int32(n)):
		v.path[v.n-1] += int32(n)
	default:
		return value{}
	}
	return v
}

// load returns the content at the address that the value holds.
func (v value) load() value {
	switch {
	case v.root == constant:
		return rooted(global, v.id)
	case v.n == 0 || v.n == maxPath || v.root == frame:
		return value{}
	}
	v.n++
	return v
}

// inFrame is the place in the frame that the value points to.
func (v value) inFrame() (at int32, ok bool) { return v.path[0], v.root == frame && v.n == 1 }

// chain returns the path from an argument to the place that the value points to.
func (v value) chain(arg uint64) (Chain, bool) {
	if v.root != argument || v.id != arg {
		return nil, false
	}
	return append(Chain{}, v.path[:v.n]...), true
}

// loaded is the path from an argument to the location that the value was loaded from.
func (v value) loaded(arg uint64) (Chain, bool) {
	c, ok := v.chain(arg)
	if !ok || len(c) < 2 || c[len(c)-1] != 0 {
		return nil, false
	}
	return c[:len(c)-1], true
}

// slot is a value stored in the stack frame.
type slot struct {
	at    int32
	bytes int32
	value value
}

// maxSlots bounds the known slots of a frame.
const maxSlots = 96

// state is the known content of registers and frame before an instruction.
type state struct {
	regs [16]value
	// slots are the known parts of the frame, in no order.
	slots []slot
	// escaped is the lowest part of the frame whose address was taken: code elsewhere may
	// write from there on.
	escaped int32
}

// arguments are the registers of the calling convention.
var arguments = [...]int{rdi, rsi, rdx, rcx, r8, r9}

const nothingEscaped = 1<<31 - 1

func entryState() *state {
	s := &state{escaped: nothingEscaped}
	for i, r := range arguments {
		s.regs[r] = rooted(argument, uint64(i))
	}
	s.regs[rsp] = rooted(frame, 0)
	return s
}

func (s *state) arg(n int) value { return s.regs[arguments[n]] }

// merge drops the facts on which the two states differ, and reports whether it dropped any.
func (s *state) merge(with *state) (changed bool) {
	for i := range s.regs {
		if s.regs[i] != with.regs[i] && s.regs[i].root != unknown {
			s.regs[i] = value{}
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
func (s *state) slot(at, bytes int32) (value, bool) {
	for _, have := range s.slots {
		if have.at == at && bytes <= have.bytes {
			return have.value, true
		}
	}
	return value{}, false
}

// drop drops slots. They are copied: states share them.
func (s *state) drop(dropped func(slot) bool) {
	s.slots = slices.DeleteFunc(slices.Clone(s.slots), dropped)
}

// forget drops the known content of a part of the frame.
func (s *state) forget(from, to int64) {
	s.drop(func(have slot) bool { return from < int64(have.at)+int64(have.bytes) && int64(have.at) < to })
}

// expose drops the parts of the frame that code elsewhere may have written. It keeps a copy of
// the first argument: that is `this`, or the address of the result, which C++ code cannot change.
func (s *state) expose() {
	if s.escaped != nothingEscaped {
		s.drop(func(have slot) bool { return have.at+have.bytes > s.escaped && have.value != rooted(argument, 0) })
	}
}

// store records that bytes were stored at an address.
func (s *state) store(to value, bytes int32, v value) {
	at, ok := to.inFrame()
	if !ok {
		if to.root == unknown {
			s.expose()
		}
		return
	}
	s.forget(int64(at), int64(at)+int64(bytes))
	if v.root != unknown && v.root != constant8 && bytes >= 4 && len(s.slots) < maxSlots {
		s.slots = append(s.slots, slot{at, bytes, v})
	}
}

// general is the number of a general register and its width in bytes.
func general(arg x86asm.Arg) (n, bytes int, ok bool) {
	r, ok := arg.(x86asm.Reg)
	switch {
	case !ok:
	case r >= x86asm.RAX && r <= x86asm.R15:
		return int(r - x86asm.RAX), 8, true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return int(r - x86asm.EAX), 4, true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return int(r - x86asm.AX), 2, true
	case r >= x86asm.AL && r <= x86asm.BL:
		return int(r - x86asm.AL), 1, true
	case r >= x86asm.AH && r <= x86asm.BH:
		return int(r - x86asm.AH), 1, true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return int(r-x86asm.SPB) + rsp, 1, true
	}
	return 0, 0, false
}
