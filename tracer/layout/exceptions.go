package layout

import (
	"debug/elf"
	"slices"
	"strings"

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
var exceptionTypes = []string{"13runtime_error", "11logic_error", invalidArgument}

const invalidArgument = "16invalid_argument"

// Beside returns the Exceptions of a file that belongs to tt-metal, or calls it: exceptions of the library's
// templates are made in whichever file the dynamic linker takes them from.
func Beside(e *symbolize.ELF) []ExceptionProbe {
	if !e.Imports("_ZN2tt", "_ZNK2tt", "_ZN4ttnn") {
		return nil
	}
	return Exceptions(e)
}

// calls reports whether the code of a file calls tt-metal from outside: a Python extension or a
// program. An exception that it catches has left the library.
func calls(e *symbolize.ELF) bool {
	return slices.ContainsFunc(e.ProgramHeaders(), func(p elf.ProgHeader) bool { return p.Type == elf.PT_INTERP }) || e.Imports("PyInit_")
}

// Exceptions returns where a file makes exceptions and, unless it calls tt-metal from outside, catches
// them: at the stubs through which it calls libstdc++ or, if that is linked into it, in these functions.
func Exceptions(e *symbolize.ELF) (list []ExceptionProbe) {
	wanted := exceptionFunctions(calls(e))
	names := []string{catches}
	for _, f := range wanted {
		names = append(names, f.Symbol)
	}
	stubs := e.PLTs(names...)
	_, imported := stubs[catches]
	for _, f := range wanted {
		addr, ok := stubs[f.Symbol]
		if !imported {
			var s symbolize.Symbol
			s, ok = e.Lookup(f.Symbol)
			addr = s.Addr
			ok = ok && !strings.Contains(f.Symbol, invalidArgument) // it calls that of std::logic_error
		}
		offset, inFile := e.FileOffset(addr)
		// a complete constructor and that of a base class may be one function
		if ok && inFile && !slices.ContainsFunc(list, func(p ExceptionProbe) bool { return p.FileOffset == offset }) {
			f.Probe = Probe{Symbol: f.Symbol, Addr: addr, ProbeAddr: addr, FileOffset: offset, Stepped: true}
			list = append(list, f)
		}
	}
	return list
}

// exceptionFunctions are the functions to place probes at, with only their names and kinds.
func exceptionFunctions(outside bool) (list []ExceptionProbe) {
	add := func(name string, kind ExceptionKind) {
		list = append(list, ExceptionProbe{Probe{Symbol: name}, kind})
	}
	constructors := []string{"C1", "C2"}
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
