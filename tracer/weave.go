package tracer

import "ttmem/tracer/event"

// pythonEntry is PYTHON_ENTRY of bpf/src/records.h.
const pythonEntry = 1 << 31

// shownCall is a call as people see it. Many stacks share it.
type shownCall struct {
	// frames are innermost first: several where the compiler inlined functions.
	frames []event.Frame
	// json is the frames as records have them.
	json []byte
}

func newShownCall(frames []event.Frame) *shownCall {
	return &shownCall{frames, event.AppendFrames(nil, frames)}
}

// nativeCall is a call of a native stack.
type nativeCall struct {
	// shown is what is shown of it; nil where an interpreter's own are folded.
	shown *shownCall
	// eval marks a call of the loop that runs Python's code.
	eval bool
	// interpreter marks a call inside the interpreter.
	interpreter bool
}

// pythonCall is a call of a Python stack.
type pythonCall struct {
	shown *shownCall
	// entry marks a call that was made by C: the loop that runs it is on the
	// native stack, and runs those that it called in Python as well.
	entry bool
}

// weave puts the two parts of a stack together, innermost first: Python's calls
// stand where the loop that runs them was called. The interpreter's own calls are
// left out, unless all are wanted.
func weave(native []nativeCall, python []pythonCall, all bool) []*shownCall {
	stack := make([]*shownCall, 0, len(native)+len(python))
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
