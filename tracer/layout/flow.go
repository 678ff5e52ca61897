package layout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// flow is a function's reachable steps, in order of address.
type flow struct {
	e     *symbolize.ELF
	fn    symbolize.Symbol
	impl  map[string]Chain // implPaths
	steps []*x86.Step
	// err is why there are no steps.
	err error
}

// unsized is the number of bytes to read of a function whose symbol has no size.
const unsized = 1 << 10

// follow derives the content of registers in a function.
func follow(e *symbolize.ELF, fn symbolize.Symbol, impl map[string]Chain) *flow {
	f := &flow{e: e, fn: fn, impl: impl}
	var code []byte
	if code, f.err = e.Text(fn.Addr, int(min(cmp.Or(fn.Size, unsized), x86.MaxCode))); f.err == nil {
		f.follow(code)
	}
	return f
}

// follow sets the steps of a function with this code.
func (f *flow) follow(code []byte) {
	f.steps, f.err = x86.Follow(code, f.fn.Addr, func(function uint64, before *x86.State) (result x86.Value, returns bool) {
		return f.callToImpl(function, before.Arg(0)), !f.noReturn(function)
	})
	if errors.Is(f.err, x86.ErrVisits) {
		f.err = fmt.Errorf("%w: %w", errShape, f.err)
	}
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
func (f *flow) callee(s *x86.Step) string {
	if s.Op != x86asm.CALL && s.Op != x86asm.JMP && !s.Jumps() {
		return ""
	}
	target, ok := s.Target()
	if !ok || s.Op != x86asm.CALL && target-f.fn.Addr < f.fn.Size {
		return ""
	}
	return f.name(target)
}
