package stack

import "ttmem/tracer/event"

// nativeCall is a call in a native stack.
type nativeCall struct {
	// shown is the call as shown; nil for a folded call of the interpreter.
	shown *event.Call
	// eval marks a call of Python's evaluation loop.
	eval bool
	// interpreter marks a call of the interpreter's own code.
	interpreter bool
}

// pythonCall is a call in a Python stack.
type pythonCall struct {
	shown *event.Call
	// entry marks a call made by C. The evaluation loop that runs it is on the native
	// stack, and also runs the Python functions that it calls.
	entry bool
}

// interleave merges the two parts of a stack, innermost first: each Python call takes the place
// of the call of the evaluation loop that runs it. Calls of the interpreter's own code are left
// out unless all is set.
func interleave(native []nativeCall, python []pythonCall, all bool) []*event.Call {
	stack := make([]*event.Call, 0, len(native)+len(python))
	for _, call := range native {
		if !call.interpreter || all {
			stack = append(stack, call.shown)
		}
		if !call.eval {
			continue
		}
		for len(python) > 0 {
			stack = append(stack, python[0].shown)
			entry := python[0].entry
			python = python[1:]
			if entry {
				break
			}
		}
	}
	// the native part ended before the interpreter's outermost loop
	for _, call := range python {
		stack = append(stack, call.shown)
	}
	return stack
}
