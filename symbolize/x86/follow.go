package x86

import (
	"errors"

	"golang.org/x/arch/x86/x86asm"
)

// A Step is an instruction with the state before it, as it holds on every path.
type Step struct {
	Instruction
	State *State
}

// Operand is the value of an operand.
func (s *Step) Operand(n int) Value { return s.State.operand(&s.Instruction, s.Args[n]) }

// Access is the address of the memory that the instruction accesses, if any. lea has a
// memory operand, but does not access it.
func (s *Step) Access() (Value, bool) {
	m, _, ok := s.Mem()
	if !ok || s.Op == x86asm.LEA || s.Op == x86asm.NOP {
		return Value{}, false
	}
	return s.State.address(&s.Instruction, m), true
}

// Accessed is the path from one of the function's arguments to the memory that the
// instruction accesses.
func (s *Step) Accessed(arg uint64) (Chain, bool) {
	a, ok := s.Access()
	if !ok {
		return nil, false
	}
	return a.Chain(arg)
}

// Array returns the base of the array whose element the step accesses; unknown if it accesses
// none with this scale.
func (s *Step) Array(scale uint8) Value {
	m, _, ok := s.Mem()
	base, bytes, ok1 := Register(m.Base)
	index, _, ok2 := Register(m.Index)
	if !ok || !ok1 || !ok2 || bytes != 8 || m.Scale != scale || m.Segment != 0 || s.Op == x86asm.LEA {
		return Value{}
	}
	if v := s.State.Regs[base]; scale != 1 || v.Root != Unknown {
		return v
	}
	return s.State.Regs[index] // with the scale 1 either register may be the base
}

// Result is what the instruction leaves in the register of its first operand.
func (s *Step) Result() (v Value) {
	if n, bytes, ok := Register(s.Args[0]); ok && bytes >= 4 {
		after := *s.State
		after.apply(&s.Instruction)
		v = after.Regs[n]
	}
	return v
}

// Is reports whether a step has this operation, on this many bytes of memory.
func (s *Step) Is(op x86asm.Op, bytes int) bool { return s.Op == op && s.MemBytes == bytes }

// Has reports whether an operand is this constant.
func (s *Step) Has(n int, constant int64) bool { return s.Args[n] == x86asm.Arg(x86asm.Imm(constant)) }

// MaxCode is the largest function that is followed, in bytes: the largest useful one has 7 KiB. Visits
// are bounded too, because an instruction is visited again when its state before turns out to be less
// certain.
const (
	MaxCode   = 1 << 15
	maxVisits = 1 << 15
)

// ErrVisits is the error for a function of which the states at some instructions did not settle, so
// that they may be wrong.
var ErrVisits = errors.New("its code has too many paths")

// Follow derives the content of registers in a function, and returns its reachable instructions in order
// of address. It follows all paths from the entry at an address; where paths join, it keeps the facts
// that hold on all of them. A path ends at an undecodable instruction. called returns the result of a
// function that is called directly, and whether it returns at all.
func Follow(code []byte, entry uint64, called func(function uint64, before *State) (result Value, returns bool)) (steps []*Step, err error) {
	type visited struct {
		Step
		bad bool
	}
	seen := make([]*visited, len(code))
	type visit struct {
		at    uint64
		state *State
	}
	todo := []visit{{entry, entryState()}}
	for visits := 0; len(todo) > 0; visits++ {
		if visits == maxVisits {
			return nil, ErrVisits
		}
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		offset := next.at - entry
		if offset >= uint64(len(code)) {
			continue // to another function
		}
		v := seen[offset]
		if v == nil {
			in, err := Decode(code[offset:], next.at)
			v = &visited{Step{in, next.state}, err != nil}
			seen[offset] = v
		} else if !v.State.merge(next.state) {
			continue
		}
		if v.bad {
			continue
		}
		out := *v.State
		out.apply(&v.Instruction)
		target, direct := v.Target()
		switch {
		case v.Op == x86asm.RET, v.Op == x86asm.UD2, v.Op == x86asm.HLT, v.Op == x86asm.JMP && !direct:
			continue
		case v.Op == x86asm.JMP:
			todo = append(todo, visit{target, &out})
			continue
		case v.Jumps() && direct:
			taken := out
			todo = append(todo, visit{target, &taken})
		case v.Op == x86asm.CALL && direct:
			result, returns := called(target, v.State)
			if !returns {
				continue
			}
			out.Regs[RAX] = result
		}
		todo = append(todo, visit{v.Next(), &out})
	}
	for _, v := range seen {
		if v != nil && !v.bad {
			steps = append(steps, &v.Step)
		}
	}
	return steps, nil
}
