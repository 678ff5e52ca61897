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
	// Stack is the index of its call stack in the document.
	Stack *int `json:"stack,omitempty"`
}

// Stacks are the call stacks of a JSON document, which allocations refer to by index.
type Stacks struct {
	List    []*event.Stack
	indices map[uint64]*int // by id
}

// NewStacks returns an empty list.
func NewStacks() *Stacks {
	return &Stacks{List: []*event.Stack{}, indices: make(map[uint64]*int)}
}

// Named names a row, and lists its call stack if that is not listed yet.
func (s *Stacks) Named(n *Namer, a *Row) Named {
	named := Named{
		Name: n.Title(a, " · "), Op: a.Name.Op, Function: a.Name.Call.Function, File: a.Name.Call.File, Line: a.Name.Call.Line,
		Component: a.Component,
	}
	if a.Stack == nil {
		return named
	}
	if s.indices[a.Stack.ID] == nil {
		at := len(s.List)
		s.indices[a.Stack.ID] = &at
		s.List = append(s.List, a.Stack)
	}
	named.Stack = s.indices[a.Stack.ID]
	return named
}
