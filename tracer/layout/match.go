package layout

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize/x86"
)

// A finder finds a field in the code of a function.
type finder func(*flow) (Chain, error)

// A matcher finds a field in a step.
type matcher func(*x86.Step) (Chain, bool)

// on limits a matcher to steps with an operation on this many bytes of memory; 0 stands for
// any number.
func on(op x86asm.Op, bytes int, m matcher) matcher {
	return func(s *x86.Step) (Chain, bool) {
		if s.Op != op || bytes != 0 && s.MemBytes != bytes {
			return nil, false
		}
		return m(s)
	}
}

// direct limits chains to fields of the object itself, without a pointer on the way.
func direct(c Chain, ok bool) (Chain, bool) { return c, ok && len(c) == 1 }

func (f *flow) first(m matcher) (Chain, error) {
	for _, s := range f.steps {
		if c, ok := m(s); ok {
			return c, nil
		}
	}
	return nil, errShape
}

// all are the different chains that a matcher finds, in the order of the steps.
func (f *flow) all(m matcher) (found []Chain) {
	for _, s := range f.steps {
		if c, ok := m(s); ok && !contains(found, c) {
			found = append(found, c)
		}
	}
	return found
}

func contains(list []Chain, c Chain) bool {
	return slices.ContainsFunc(list, func(other Chain) bool { return slices.Equal(other, c) })
}

// only returns the single chain of a list.
func only(list []Chain) (Chain, error) {
	if len(list) != 1 {
		return nil, errShape
	}
	return list[0], nil
}

// first returns the finder of the first chain that a matcher finds.
func first(m matcher) finder { return func(f *flow) (Chain, error) { return f.first(m) } }

// single returns the finder of the only chain that a matcher finds.
func single(m matcher) finder { return func(f *flow) (Chain, error) { return only(f.all(m)) } }

// except returns the finder of the only field that a matcher finds besides one.
func except(field Chain, m matcher) finder {
	return func(f *flow) (Chain, error) {
		if len(field) == 0 {
			return nil, errors.New("the field beside it is not known")
		}
		return only(slices.DeleteFunc(f.all(m), func(c Chain) bool { return c[len(c)-1] == field[len(field)-1] }))
	}
}

// then returns the finder of what a chain that find finds leads to.
func then(find finder, lead func(Chain) (Chain, bool)) finder {
	return func(f *flow) (Chain, error) {
		c, err := find(f)
		if err != nil {
			return nil, err
		}
		if len(c) > 0 {
			if c, ok := lead(c); ok {
				return c, nil
			}
		}
		return nil, errShape
	}
}

// moved returns the finder of the field that lies some bytes behind the one that find
// finds. Both are fields of the object itself.
func moved(find finder, bytes int32) finder {
	return then(find, func(c Chain) (Chain, bool) { return c.Plus(bytes), len(c) == 1 })
}

// within makes find's chain begin at an outer object, from which object is the chain to the inner
// one.
func within(object Chain, find finder) finder {
	return then(find, func(c Chain) (Chain, bool) { return slices.Concat(object, c), true })
}

// inPointee applies find to the object that the first word of a function's object points
// to, as in a CircularBuffer.
func inPointee(find finder) finder {
	return then(find, func(c Chain) (Chain, bool) { return c[1:], len(c) == 2 && c[0] == 0 })
}

// element returns the finder of the pointer to the element that find finds, which is the first one
// behind it.
func element(find finder) finder {
	return then(find, func(c Chain) (Chain, bool) { return c[:len(c)-1], len(c) > 1 && c[len(c)-1] == 0 })
}

// result finds the field that a function returns. All returns with a known value must
// agree.
var result = single(on(x86asm.RET, 0, func(s *x86.Step) (Chain, bool) { return s.State.Regs[x86.RAX].Loaded(0) }))

// returned finds the field whose address a function returns. All returns with a known value
// must agree.
var returned = single(on(x86asm.RET, 0, func(s *x86.Step) (Chain, bool) {
	c, ok := s.State.Regs[x86.RAX].Chain(0)
	return c, ok && (len(c) > 1 || c[0] > 0) // else it is the argument itself
}))

// passed finds the field that a function passes as first argument to a function with this part in
// its name.
func passed(part string) finder {
	return calling(part, func(s *x86.Step) (Chain, bool) { return s.State.Arg(0).Loaded(0) })
}

// handedTo finds the field whose address a function passes as first argument to a function with
// this part in its name.
func handedTo(part string) finder {
	return calling(part, func(s *x86.Step) (Chain, bool) { return direct(s.State.Arg(0).Chain(0)) })
}

// calling limits a matcher to calls of functions with this part in their names, and finds the
// first chain.
func calling(part string, m matcher) finder {
	return func(f *flow) (Chain, error) {
		return f.first(func(s *x86.Step) (Chain, bool) {
			if !strings.Contains(f.callee(s), part) {
				return nil, false
			}
			return m(s)
		})
	}
}

// accesses matches an access to a field of this many bytes.
func accesses(bytes int) matcher {
	return func(s *x86.Step) (Chain, bool) {
		c, ok := s.Accessed(0)
		return c, ok && s.MemBytes == bytes
	}
}

// comparesAny matches a comparison of a field of this many bytes with a number.
func comparesAny(bytes int) matcher {
	return on(x86asm.CMP, bytes, func(s *x86.Step) (Chain, bool) {
		if _, number := s.Args[1].(x86asm.Imm); !number {
			return nil, false
		}
		return s.Accessed(0)
	})
}

// compares matches a comparison of a field of this many bytes with one of these numbers.
func compares(bytes int, numbers ...int64) matcher {
	any := comparesAny(bytes)
	return func(s *x86.Step) (Chain, bool) {
		c, ok := any(s)
		return c, ok && slices.ContainsFunc(numbers, func(n int64) bool { return s.Has(1, n) })
	}
}

// divides matches a division by a field.
var divides = on(x86asm.DIV, 0, func(s *x86.Step) (Chain, bool) { return direct(s.Operand(0).Loaded(0)) })

// setsTrue matches a store of 1 to a byte.
var setsTrue = on(x86asm.MOV, 1, func(s *x86.Step) (Chain, bool) {
	c, ok := s.Accessed(0)
	return c, ok && s.Has(1, 1)
})
