package layout

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// step is an instruction with the state before it, as it holds on every path.
type step struct {
	instruction
	state *state
}

func (s *step) operand(n int) value { return s.state.operand(&s.instruction, s.args[n]) }

// access is the address of the memory that the instruction accesses, if any. lea has a
// memory operand, but does not access it.
func (s *step) access() (value, bool) {
	m, _, ok := s.mem()
	if !ok || s.op == x86asm.LEA || s.op == x86asm.NOP {
		return value{}, false
	}
	return s.state.address(&s.instruction, m), true
}

// accessed is the path from one of the function's arguments to the memory that the
// instruction accesses.
func (s *step) accessed(arg uint64) (Chain, bool) {
	a, ok := s.access()
	if !ok {
		return nil, false
	}
	return a.chain(arg)
}

// is reports whether a step has this operation, on this many bytes of memory.
func (s *step) is(op x86asm.Op, bytes int) bool { return s.op == op && s.bytes == bytes }

// has reports whether an operand is this constant.
func (s *step) has(n int, constant int64) bool { return s.args[n] == x86asm.Arg(x86asm.Imm(constant)) }

// flow is a function's reachable steps, in order of address.
type flow struct {
	e     *symbolize.ELF
	fn    symbolize.Symbol
	steps []step
}

// Limits on the size of a function: the largest useful one has 7 KiB. Visits are bounded too,
// because an instruction is visited again when its state before turns out to be less certain.
const (
	maxCode   = 1 << 15
	maxVisits = 1 << 15
	// unsized is the number of bytes to read of a function whose symbol has no size.
	unsized = 1 << 10
)

// follow derives the content of registers in a function. It follows all paths from the entry;
// where paths join, it keeps the facts that hold on all of them. A path ends at an undecodable
// instruction.
func follow(e *symbolize.ELF, fn symbolize.Symbol) (*flow, error) {
	code, err := e.Text(fn.Addr, int(min(cmp.Or(fn.Size, unsized), maxCode)))
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
		case v.in.op == x86asm.CALL && direct:
			out.regs[rax] = f.callToImpl(target, v.state.arg(0))
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

// noReturn reports whether the function at an address never returns, judging by its name. A
// wrong "no" costs knowledge, but gives no wrong result: the code after the call is reached
// with states that do not agree.
func (f *flow) noReturn(addr uint64) bool {
	name := f.name(addr)
	return name == "abort" || slices.ContainsFunc([]string{
		"__throw_", "tt_throw", "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "__assert_fail",
		"__stack_chk_fail", "_ZSt9terminatev", "__clang_call_terminate",
	}, func(part string) bool { return strings.Contains(name, part) })
}

// name is the mangled name of the function at an address, also through a PLT stub; "" if it
// has none.
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

// callee is the mangled name of the function that a step calls directly or tail-calls; ""
// if there is none.
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
