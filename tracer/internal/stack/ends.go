package stack

import (
	"ttmem/bpf"
	"ttmem/tracer/kernel"
)

// How a complete stack ends.
const (
	CompleteStack  = "at the thread's start"
	NoPython       = "no Python"
	CompletePython = "at the outermost Python frame"
)

// stackEnds are the reasons why a stack ends: first of the native part, then of the Python
// part.
var stackEnds = [bpf.KernelStackEndSTACK_ENDS]string{
	bpf.KernelStackEndEND_START:                CompleteStack,
	bpf.KernelStackEndEND_TOO_DEEP:             "more than 128 frames",
	bpf.KernelStackEndEND_NO_SPACE:             "process not known yet",
	bpf.KernelStackEndEND_NOT_MAPPED:           "address in no known code",
	bpf.KernelStackEndEND_NO_ROW:               "code without unwind rows",
	bpf.KernelStackEndEND_UNSUPPORTED:          "unwind row of another register",
	bpf.KernelStackEndEND_BAD_FRAME:            "frames out of order",
	bpf.KernelStackEndEND_NOT_READABLE:         "stack memory not readable",
	bpf.KernelStackEndEND_RING_FULL:            "ring buffer full",
	bpf.KernelStackEndEND_NO_STATE:             "no memory for a thread's state",
	bpf.KernelStackEndEND_ONLY_PYTHON:          "more than 128 frames, all Python ones known",
	bpf.KernelStackEndEND_PYTHON_NONE:          NoPython,
	bpf.KernelStackEndEND_PYTHON:               CompletePython,
	bpf.KernelStackEndEND_PYTHON_TOO_DEEP:      "more than 128 Python frames",
	bpf.KernelStackEndEND_PYTHON_NO_SPACE:      "forked process not known yet",
	bpf.KernelStackEndEND_PYTHON_NOT_READABLE:  "Python frame not readable",
	bpf.KernelStackEndEND_PYTHON_BAD:           "Python frame makes no sense",
	bpf.KernelStackEndEND_PYTHON_NO_TABLE_ROOM: "table of stacks full (Python)",
	bpf.KernelStackEndEND_PYTHON_RING_FULL:     "ring buffer full (Python)",
}

// nativeEnds is the number of reasons for the native part.
const nativeEnds = int(bpf.KernelStackEndEND_PYTHON_NONE)

// CountEnds counts stacks by how their native part and their Python part ended.
func CountEnds(objs *kernel.Objects) (native, python map[string]uint64) {
	native, python = make(map[string]uint64), make(map[string]uint64)
	for i, name := range stackEnds {
		var perCPU []uint64
		if objs.StackEnds.Lookup(uint32(i), &perCPU) != nil {
			continue
		}
		var n uint64
		for _, k := range perCPU {
			n += k
		}
		switch {
		case n == 0:
		case i < nativeEnds:
			native[name] = n
		default:
			python[name] = n
		}
	}
	return native, python
}
