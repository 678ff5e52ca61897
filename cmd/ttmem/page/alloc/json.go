package alloc

import "ttmem/tracer/event"

// Named has the fields of JSON documents that name an allocation.
type Named struct {
	Name      string `json:"name"`
	Op        string `json:"op,omitempty"`
	Function  string `json:"function,omitempty"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Component string `json:"component,omitempty"`
	// Class is what a buffer is for, as --by class has it; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// Stack is its call stack; left out if it is not known.
	Stack *event.Stack `json:"stack,omitempty"`
}

// Named names a row.
func (n *Namer) Named(a *Row) Named {
	return Named{
		Name: n.Name(a), Class: a.Class().String(), Op: a.Name.Op, Function: a.Name.Call.Function, File: a.Name.Call.File, Line: a.Name.Call.Line,
		Component: a.Component, Stack: a.Stack,
	}
}
