package layout

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// step is an instruction with what is known before it, on whichever way it is
// reached.
type step struct {
	instruction
	state *state
}

// operand is the value of one of the instruction's operands.
func (s *step) operand(n int) value { return s.state.operand(&s.instruction, s.args[n]) }

// access is the address of the instruction's memory operand, and whether it has
// one. lea has one, but does not access it.
func (s *step) access() (value, bool) {
	m, _, ok := s.mem()
	if !ok || s.op == x86asm.LEA || s.op == x86asm.NOP {
		return value{}, false
	}
	return s.state.address(&s.instruction, m), true
}

// flow is the steps of a function in the order of their addresses: those that
// can be reached from its entry.
type flow struct {
	e     *symbolize.ELF
	fn    symbolize.Symbol
	steps []step
}

// Limits of how much of a function is looked at: the largest that is of use has
// 7 KiB. Every instruction is visited again when less turns out to be known
// before it, so that visits are bounded too.
const (
	maxCode   = 1 << 15
	maxVisits = 1 << 15
	// unsized is how much is read of a function whose symbol has no size.
	unsized = 1 << 10
)

// follow works out what registers hold in a function: it goes all ways from the
// entry, and where ways meet keeps what holds on all of them. A way ends at what
// cannot be decoded.
func follow(e *symbolize.ELF, fn symbolize.Symbol) (*flow, error) {
	size := fn.Size
	if size == 0 {
		size = unsized
	}
	code, err := e.Text(fn.Addr, int(min(size, maxCode)))
	if err != nil {
		return nil, err
	}
	return followCode(e, fn, code), nil
}

// followCode is follow for code that was read already.
func followCode(e *symbolize.ELF, fn symbolize.Symbol, code []byte) *flow {
	f := &flow{e: e, fn: fn}
	type visited struct {
		in    instruction
		bad   bool
		state *state
	}
	seen := make([]*visited, len(code))
	type visit struct {
		at    uint64
		state *state
	}
	todo := []visit{{fn.Addr, entryState()}}
	for visits := 0; len(todo) > 0 && visits < maxVisits; visits++ {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if next.at < fn.Addr || next.at-fn.Addr >= uint64(len(code)) {
			continue // to another function
		}
		offset := next.at - fn.Addr
		v := seen[offset]
		if v == nil {
			in, err := decode(code[offset:], next.at)
			v = &visited{in: in, bad: err != nil, state: next.state}
			seen[offset] = v
		} else if !v.state.merge(next.state) {
			continue
		}
		if v.bad {
			continue
		}
		out := *v.state
		out.apply(&v.in)
		target, direct := v.in.target()
		switch {
		case v.in.op == x86asm.RET, v.in.op == x86asm.UD2, v.in.op == x86asm.HLT:
			continue
		case v.in.op == x86asm.JMP:
			if direct {
				todo = append(todo, visit{target, &out})
			}
			continue
		case jump(v.in.op) && direct:
			taken := out
			todo = append(todo, visit{target, &taken})
		case v.in.op == x86asm.CALL && direct && f.noReturn(target):
			continue
		}
		todo = append(todo, visit{v.in.next(), &out})
	}
	for _, v := range seen {
		if v != nil && !v.bad {
			f.steps = append(f.steps, step{v.in, v.state})
		}
	}
	return f
}

// noReturn reports whether the function at an address never returns, as far as
// its name tells. One that is not known costs knowledge, but gives no wrong
// one: what follows it is reached with states that do not agree.
func (f *flow) noReturn(addr uint64) bool {
	name := f.name(addr)
	for _, part := range []string{
		"__throw_", "tt_throw", "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "__assert_fail",
		"__stack_chk_fail", "_ZSt9terminatev", "__clang_call_terminate",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return name == "abort"
}

// name is the mangled name of the function at an address, through a PLT stub
// too; "" if it has none.
func (f *flow) name(addr uint64) string {
	if f.e == nil {
		return ""
	}
	if name, ok := f.e.PLTName(addr); ok {
		return name
	}
	if s, offset, ok := f.e.At(addr); ok && offset == 0 {
		return s.Name
	}
	return ""
}

// callee is the mangled name of the function that a step calls directly, or
// leaves to by a jump; "" where it does not.
func (f *flow) callee(s *step) string {
	if s.op != x86asm.CALL && s.op != x86asm.JMP && !jump(s.op) {
		return ""
	}
	target, ok := s.target()
	if !ok || s.op != x86asm.CALL && target-f.fn.Addr < f.fn.Size {
		return ""
	}
	return f.name(target)
}

// result is where the value was loaded from that all returns of the function
// give that give a known one; they have to agree.
func (f *flow) result() (Chain, error) {
	var found Chain
	for i := range f.steps {
		s := &f.steps[i]
		if s.op != x86asm.RET {
			continue
		}
		c, ok := s.state.regs[rax].loaded(0)
		if !ok {
			continue
		}
		if found != nil && found.String() != c.String() {
			return nil, errShape
		}
		found = c
	}
	if found == nil {
		return nil, errShape
	}
	return found, nil
}

// first is the first step for which what is asked gives a chain.
func (f *flow) first(ask func(*step) (Chain, bool)) (Chain, error) {
	for i := range f.steps {
		if c, ok := ask(&f.steps[i]); ok {
			return c, nil
		}
	}
	return nil, errShape
}

// all are the different chains that what is asked gives, in the order of the
// steps.
func (f *flow) all(ask func(*step) (Chain, bool)) (found []Chain) {
	have := map[string]bool{}
	for i := range f.steps {
		if c, ok := ask(&f.steps[i]); ok && !have[c.String()] {
			have[c.String()] = true
			found = append(found, c)
		}
	}
	return found
}
