package name

import (
	"fmt"
	"path"
	"strings"

	"ttmem/tracer/event"
)

// A Name is what a buffer is called without anyone having given it a name: the
// operation that allocated it, and the innermost line of the user's own code.
type Name struct {
	// Op is the operation: ttnn.matmul, ttnn::matmul in a program without Python,
	// or the function of tt-metal that was called; "" where the stack has none.
	Op string
	// Call is the innermost call of the user's own code; its zero value where the
	// stack has none.
	Call Call
}

// A Call is a function of the user's code, where it made a call of its own.
type Call struct {
	// Function has its class in front of it where Python tells (3.11 and later).
	Function string
	// File is the path as the interpreter or the compiler has it; "" where it is
	// not known, and then Line is 0.
	File string
	Line int
}

// String is the call with the last part of its file's path: "model.py:12 forward".
func (c Call) String() string {
	if c.File == "" {
		return c.Function
	}
	place := fmt.Sprintf("%s:%d", path.Base(c.File), c.Line)
	if c.Function == "" || c.Function == "<module>" {
		return place
	}
	return place + " " + c.Function
}

// Text is the name in one line, its two parts apart by the separator; "" where
// nothing is known.
func (n Name) Text(separator string) string {
	call := n.Call.String()
	if n.Op == "" || call == "" {
		return n.Op + call
	}
	return n.Op + separator + call
}

// String is the name as in "ttnn.matmul · model.py:12 Attention.forward".
func (n Name) String() string { return n.Text(" · ") }

// Of names what was allocated at a stack, innermost frame first.
func Of(stack []event.Frame) Name {
	n := Name{Op: operation(stack)}
	if calls := UserCalls(stack); len(calls) > 0 {
		n.Call = calls[0]
	}
	if n.Op == n.Call.Function {
		n.Op = "" // a C++ function that is all there is
	}
	return n
}

// UserCalls are the calls of the user's own code, innermost first: Python that is no
// installed package's and not Python's own, or all of Python where nothing else is
// there. In a program without Python they are the native functions outside of
// tt-metal, ttnn and the system's libraries.
func UserCalls(stack []event.Frame) []Call {
	var own, all []Call
	for i := range stack {
		f := &stack[i]
		if f.Kind != event.Python {
			continue
		}
		c := Call{f.Name, f.File, f.Line}
		all = append(all, c)
		if !installed(f.File) {
			own = append(own, c)
		}
	}
	if len(own) > 0 {
		return own
	}
	if len(all) > 0 {
		return all
	}
	for i := range stack {
		f := &stack[i]
		if f.Name == "" || library(f) || outermost[f.Name] {
			continue
		}
		own = append(own, Call{f.Name, f.File, f.Line})
	}
	return own
}

// outermost are what starts a program or a thread.
var outermost = map[string]bool{
	"_start": true, "__libc_start_main": true, "__libc_start_call_main": true,
	"start_thread": true, "clone3": true, "__clone": true,
}

// installed reports whether a Python file is a package's or Python's own. A checkout
// of tt-metal has ttnn's Python in ttnn/ttnn.
func installed(file string) bool {
	for _, folder := range []string{"/site-packages/", "/dist-packages/", "/ttnn/ttnn/"} {
		if strings.Contains(file, folder) {
			return true
		}
	}
	if strings.HasPrefix(file, "<frozen ") {
		return true
	}
	// …/lib/python3.12/threading.py
	_, rest, ok := strings.Cut(file, "/lib/python3")
	version, _, inside := strings.Cut(rest, "/")
	return ok && inside && strings.Trim(version, ".0123456789") == ""
}

// library reports whether a native function is one of tt-metal, ttnn, or what the
// system and compilers bring. What a program's own file has of their templates is
// theirs by its name.
func library(f *event.Frame) bool {
	for _, prefix := range []string{"tt::", "ttnn::", "std::", "nanobind::", "__gnu_cxx::", "operator new"} {
		if strings.HasPrefix(f.Name, prefix) {
			return true
		}
	}
	module := f.Module
	return strings.HasPrefix(module, "libtt_") || strings.HasPrefix(module, "_ttnn") || strings.HasPrefix(module, "libtt-") ||
		strings.HasPrefix(module, "libc.") || strings.HasPrefix(module, "libc-") || strings.HasPrefix(module, "libstdc++.") ||
		strings.HasPrefix(module, "libpthread") || strings.HasPrefix(module, "ld-linux") || strings.HasPrefix(module, "libpython") ||
		strings.HasPrefix(module, "libtbb") || strings.HasPrefix(module, "python3")
}

// operation is the operation that a stack is in, under the name that the user called
// it by:
//   - a function that ttnn has in Python and registers as an operation: load_tensor of
//     ttnn/operations, called by ttnn/decorators.py, is ttnn.load_tensor;
//   - an operation bound to C++, whose binding has its name: func_create<ttnn.add>,
//     also for a + b;
//   - without these, the outermost function of ttnn, or else of tt-metal, that was
//     called before any Python.
func operation(stack []event.Frame) string {
	var bound, ttnn, metal, python string
	native := true
	for i := range stack {
		f := &stack[i]
		if f.Kind != event.Python {
			if !native {
				continue // what the program called on the way
			}
			if _, name, ok := strings.Cut(f.Name, "<ttnn."); ok && bound == "" {
				name, _, _ = strings.Cut(name, ">")
				bound = "ttnn." + name
			}
			if strings.HasPrefix(f.Name, "ttnn::") {
				ttnn = f.Name
			}
			if strings.HasPrefix(f.Name, "tt::") {
				metal = f.Name
			}
			continue
		}
		native = false
		if !ofTTNN(f.File) {
			break
		}
		if decorator(f.File) && i > 0 && registered(&stack[i-1]) {
			python = "ttnn." + function(stack[i-1].Name)
		}
	}
	for _, name := range []string{python, bound, ttnn, metal} {
		if name != "" {
			return name
		}
	}
	return ""
}

// ofTTNN reports whether a Python file is one of the package ttnn.
func ofTTNN(file string) bool {
	return strings.Contains(file, "-packages/ttnn/") || strings.Contains(file, "/ttnn/ttnn/")
}

// decorator reports whether a Python file calls what is registered as an operation.
func decorator(file string) bool { return strings.HasSuffix(file, "/ttnn/decorators.py") }

// registered reports whether what a decorator called is a function of ttnn's Python
// that has a name.
func registered(f *event.Frame) bool {
	name := function(f.Name)
	return f.Kind == event.Python && ofTTNN(f.File) && !decorator(f.File) && name != "" && name[0] != '<' && !strings.HasPrefix(name, "__")
}

// function is the name of a function without its class, or the function around it.
func function(qualified string) string {
	return qualified[strings.LastIndexByte(qualified, '.')+1:]
}
