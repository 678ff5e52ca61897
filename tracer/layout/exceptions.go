package layout

import (
	"debug/elf"
	"slices"

	"ttmem/symbolize"
)

// An ExceptionProbe is where a file makes, catches or rethrows exceptions.
type ExceptionProbe struct {
	Probe
	Kind ExceptionKind
}

// An ExceptionKind says what happens at an ExceptionProbe.
type ExceptionKind uint8

// The kinds: an exception is made, with a text that is a std::string or a C string; one is caught,
// rethrown, or rethrown from a std::exception_ptr.
const (
	ExceptionMade ExceptionKind = iota
	ExceptionMadeOfText
	ExceptionCaught
	ExceptionRethrown
	ExceptionPointerRethrown
)

// catches is the function that C++ code calls first when it catches an exception.
const catches = "__cxa_begin_catch"

// exceptionTypes are the types of exceptions whose text says what failed: TT_FATAL and TT_THROW are a
// std::runtime_error.
var exceptionTypes = []string{"13runtime_error", "11logic_error", "16invalid_argument"}

// IsBeside reports whether a file belongs to tt-metal, or calls it: exceptions of the library's
// templates are made in whichever file the dynamic linker takes them from.
func IsBeside(e *symbolize.ELF) bool {
	return slices.ContainsFunc([]string{"_ZN2tt", "_ZNK2tt", "_ZN4ttnn"}, func(prefix string) bool { return e.Imports(prefix) }) &&
		len(Exceptions(e)) > 0
}

// calls reports whether the code of a file calls tt-metal from outside: a Python extension or a
// program. An exception that it catches has left the library.
func calls(e *symbolize.ELF) bool {
	return slices.ContainsFunc(e.ProgramHeaders(), func(p elf.ProgHeader) bool { return p.Type == elf.PT_INTERP }) || e.Imports("PyInit_")
}

// Exceptions returns where a file makes exceptions and, unless it calls tt-metal from outside, catches
// them: at the stubs through which it calls libstdc++ or, if that is linked into it, in these functions.
func Exceptions(e *symbolize.ELF) (list []ExceptionProbe) {
	_, imported := e.PLT(catches)
	add := func(name string, kind ExceptionKind) {
		addr, ok := e.PLT(name)
		if !imported {
			var s symbolize.Symbol
			s, ok = e.Lookup(name)
			addr = s.Addr
		}
		if offset, inFile := e.FileOffset(addr); ok && inFile {
			p := Probe{Symbol: name, Addr: addr, ProbeAddr: addr, FileOffset: offset, Stepped: true}
			list = append(list, ExceptionProbe{p, kind})
		}
	}
	constructors, outside := []string{"C1", "C2"}, calls(e)
	if outside {
		// bindings derive control flow from std::runtime_error, such as the end of an iteration
		constructors = constructors[:1]
	}
	for _, kind := range exceptionTypes {
		for _, c := range constructors {
			add("_ZNSt"+kind+c+"ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", ExceptionMade)
			add("_ZNSt"+kind+c+"EPKc", ExceptionMadeOfText)
		}
	}
	if !outside {
		add(catches, ExceptionCaught)
		add("__cxa_rethrow", ExceptionRethrown)
		add("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE", ExceptionPointerRethrown)
	}
	return list
}

// exceptions finds where the library makes and catches exceptions.
func (d *deriver) exceptions() {
	d.layout.Exceptions = Exceptions(d.e)
	if len(d.layout.Exceptions) == 0 || d.layout.Exceptions[0].Kind > ExceptionMadeOfText {
		d.miss("throw", "the library makes no std::runtime_error")
		return
	}
	d.layout.Probes["throw"] = d.layout.Exceptions[0].Probe
}
