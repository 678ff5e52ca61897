package stack

import "ttmem/tracer/event"

// nativeCall is a call of a native stack.
type nativeCall struct {
	// shown is what is shown of it; nil where an interpreter's own are folded.
	shown *event.Call
	// eval marks a call of the loop that runs Python's code.
	eval bool
	// interpreter marks a call inside the interpreter.
	interpreter bool
}

// pythonCall is a call of a Python stack.
type pythonCall struct {
	shown *event.Call
	// entry marks a call that was made by C: the loop that runs it is on the
	// native stack, and runs those that it called in Python as well.
	entry bool
}

// interleave puts the two parts of a stack together, innermost first: Python's calls
// stand where the loop that runs them was called. The interpreter's own calls are
// left out, unless all are wanted.
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
