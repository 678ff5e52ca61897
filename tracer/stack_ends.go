package tracer

import "ttmem/tracer/internal/stack"

// The names by which StackEnds counts stacks that are complete, or have no Python part.
const (
	CompleteStack  = stack.CompleteStack
	CompletePython = stack.CompletePython
	NoPython       = stack.NoPython
)
