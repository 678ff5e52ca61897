// Package name describes an allocation by its call stack: the operation, the user's own line, the
// component of the model, whether tt-metal retains the buffer, and whether the user suppressed
// it.
package name

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"ttmem/symbolize"
	"ttmem/tracer/event"
)

// A Name identifies a call site to a person: the operation that allocated, and the
// innermost line of the user's own code.
type Name struct {
	// Op is the operation: ttnn.matmul, or in a program without Python ttnn::matmul or the called
	// function of tt-metal; "" if the stack has none.
	Op string
	// Call is the innermost call of the user's own code; zero if the stack has none.
	Call Call
}

// A Call is a function of the user's code and the line in it that made a call.
type Call struct {
	// Function is qualified by its class if Python records that (3.11 and later).
	Function string
	// File is the path that the interpreter or the compiler recorded. If it is not
	// known, File is "" and Line is 0.
	File string
	Line int
}

// String returns the call with the base name of its file: "model.py:12 forward".
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

// Text returns the call and the operation, joined by the separator; "" if neither is
// known.
func (n Name) Text(separator string) string {
	call := n.Call.String()
	if n.Op == "" || call == "" {
		return call + n.Op
	}
	return call + separator + n.Op
}

// String returns the name as in "model.py:12 Attention.forward · ttnn.matmul".
func (n Name) String() string { return n.Text(" · ") }

// Of returns the name of the call site of a stack, whose innermost frame comes first.
func Of(stack []event.Frame) Name {
	n := Name{Op: operation(stack)}
	if calls := UserCalls(stack); len(calls) > 0 {
		n.Call = calls[0]
	}
	if n.Op == n.Call.Function {
		n.Op = "" // a C++ program whose stack has only this function
	}
	return n
}

// AtLine returns a function that reports whether a call stack has a call in a line, such as model.py:31.
func AtLine(line string) func(*event.Stack) bool {
	return func(s *event.Stack) bool {
		return slices.ContainsFunc(s.Frames(), func(f event.Frame) bool {
			at := fmt.Sprintf("%s:%d", f.File, f.Line)
			return f.File != "" && (at == line || strings.HasSuffix(at, "/"+line))
		})
	}
}

// UserCalls returns the calls of the user's own code, innermost first. These are Python
// functions outside installed packages and the standard library, or all Python functions
// if there are no others. In a program without Python they are the native functions
// outside tt-metal, ttnn and the system's libraries.
func UserCalls(stack []event.Frame) []Call {
	var calls []Call
	for _, f := range userFrames(stack) {
		calls = append(calls, Call{f.Name, f.File, f.Line})
	}
	return calls
}

// Fold returns what a person wants to see of a stack, innermost frame first: the operation, and the
// user's own calls (see UserCalls). It leaves out those of ttnn, tt-metal, the interpreter, the standard
// library and installed packages, such as decorators, asyncio, importlib and pytest. Frames that are no
// functions stay, such as an owner around the calls. A stack without an operation and without own calls is
// returned as it is.
func Fold(stack []event.Frame) []event.Frame {
	var folded []event.Frame
	if op := Of(stack).Op; op != "" {
		folded = []event.Frame{{Kind: event.Native, Name: op}}
	}
	folded = append(folded, userFrames(stack)...)
	if len(folded) == 0 {
		return stack
	}
	for _, f := range stack {
		if f.Kind != event.Native && f.Kind != event.Python {
			folded = append(folded, f)
		}
	}
	return folded
}

// userFrames returns the frames of UserCalls.
func userFrames(stack []event.Frame) []event.Frame {
	var own, all []event.Frame
	for _, f := range stack {
		if f.Kind != event.Python {
			continue
		}
		all = append(all, f)
		if !installed(f.File) {
			own = append(own, f)
		}
	}
	if len(own) > 0 {
		return own
	}
	if len(all) > 0 {
		return all
	}
	for _, f := range stack {
		if f.Kind == event.Native && f.Name != "" && !inLibrary(&f) && !symbolize.StartFunctions[f.Name] {
			own = append(own, f)
		}
	}
	return own
}

// installed reports whether a Python file belongs to an installed package or to the standard
// library. In a checkout of tt-metal, ttnn's Python files are in ttnn/ttnn.
func installed(file string) bool {
	for _, folder := range []string{"/site-packages/", "/dist-packages/", "/ttnn/ttnn/"} {
		if strings.Contains(file, folder) {
			return true
		}
	}
	if strings.HasPrefix(file, "<frozen ") {
		return true
	}
	// the standard library: …/lib/python3.12/threading.py
	_, rest, ok := strings.Cut(file, "/lib/python3")
	version, _, inside := strings.Cut(rest, "/")
	return ok && inside && strings.Trim(version, ".0123456789") == ""
}

// inLibrary reports whether a native function belongs to tt-metal, ttnn, the system or
// the compiler. Their templates are instantiated in the program's own file, so the
// function's name decides before the module does.
func inLibrary(f *event.Frame) bool {
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

// operation returns the operation of a stack, with the name that the user called. In order of
// preference:
//   - an operation that ttnn implements in Python: load_tensor in ttnn/operations, called
//     by ttnn/decorators.py, is ttnn.load_tensor;
//   - an operation bound to C++, named by its binding: func_create<ttnn.add>, also for
//     a + b;
//   - the outermost function of ttnn, or else of tt-metal, inside the innermost Python
//     function. If that only launches operations, as in an extension that defines its own, it is
//     the class of the operation.
func operation(stack []event.Frame) string {
	var bound, ttnn, metal, python string
	native, inner := true, len(stack)
	for i := range stack {
		f := &stack[i]
		if f.Kind != event.Python {
			if !native {
				continue // outside the innermost Python function
			}
			inner = i + 1
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
		if !inTTNN(f.File) {
			break
		}
		if decorator(f.File) && i > 0 && registered(&stack[i-1]) {
			python = "ttnn." + function(stack[i-1].Name)
		}
	}
	if python == "" && bound == "" && strings.HasPrefix(ttnn, launching) {
		ttnn = cmp.Or(launched(stack[:inner]), ttnn)
	}
	return cmp.Or(python, bound, ttnn, metal)
}

// launching begins the names of ttnn's functions that launch any operation.
const launching = "ttnn::device_operation::"

// launched returns the class of the operation that the native frames launch, which is a template
// argument of the function that launches it; else the function outside of that. It is "" if neither
// is known.
func launched(native []event.Frame) string {
	for i := range slices.Backward(native) {
		if !strings.HasPrefix(native[i].Name, launching) {
			continue
		}
		if class := symbolize.TemplateArgument(native[i].Symbol); class != "" {
			return class
		}
		if i+1 < len(native) && native[i+1].Name != "" && !inLibrary(&native[i+1]) {
			return native[i+1].Name
		}
	}
	return ""
}

// Deallocates reports whether a stack, of a free, is a call that deallocates a tensor or a buffer, such as
// ttnn.deallocate, in contrast to the end of one, or to an operation that frees memory of its own.
func Deallocates(stack []event.Frame) bool {
	op := operation(stack)
	return op[strings.LastIndexAny(op, ".:")+1:] == "deallocate"
}

// inTTNN reports whether a Python file is part of the package ttnn.
func inTTNN(file string) bool {
	return strings.Contains(file, "-packages/ttnn/") || strings.Contains(file, "/ttnn/ttnn/")
}

// decorator reports whether a Python file is the one that calls registered operations.
func decorator(file string) bool { return strings.HasSuffix(file, "/ttnn/decorators.py") }

// registered reports whether a frame called by a decorator is a named Python function of ttnn.
func registered(f *event.Frame) bool {
	name := function(f.Name)
	return f.Kind == event.Python && inTTNN(f.File) && !decorator(f.File) && name != "" && name[0] != '<' && !strings.HasPrefix(name, "__")
}

// function returns the name of a function without its class or enclosing function.
func function(qualified string) string {
	return qualified[strings.LastIndexByte(qualified, '.')+1:]
}
