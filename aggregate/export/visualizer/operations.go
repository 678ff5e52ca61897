package visualizer

import (
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// An operation is a call of ttnn in one thread: its allocations and the programs that it ran.
type operation struct {
	id int
	*call
	thread
	comm string
	// allocations are the call stacks of its allocations.
	allocations []uint64
	// programs are the ids of those that were compiled or ran, and ran are the chips of those
	// that ran.
	programs []uint64
	ran      []int
	failed   bool
	// planned are about the nodes of its graph.
	planned int

	report // what the report has of it
}

type thread struct{ pid, tid int }

// A call is what a call stack says about an operation.
type call struct {
	name string
	// user are the calls of the user's own code, innermost first.
	user []name.Call
	// key is the same for the call stacks of one call.
	key string
}

// noStack is the name of an operation without a call stack.
const noStack = "[no stack]"

func newCall(stack *event.Stack) *call {
	frames := stack.Frames()
	c := &call{user: name.UserCalls(frames)}
	of := name.Of(frames)
	for _, text := range []string{of.Op, of.Call.String(), noStack} {
		if c.name = event.Printable(text); c.name != "" {
			break
		}
	}
	if len(c.user) == 0 {
		for _, f := range frames {
			c.user = append(c.user, name.Call{Function: f.Name, File: f.File, Line: f.Line})
		}
	}
	c.user = c.user[:min(len(c.user), maxFrames)]
	var key strings.Builder
	key.WriteString(c.name)
	for _, one := range c.user {
		key.WriteString("\n" + one.File + one.String())
	}
	c.key = key.String()
	return c
}

const (
	// maxFrames is the number of calls in a stack trace.
	maxFrames = 64
	// maxCalls is the number of call stacks that are kept, maxOpen that of operations that may
	// continue, and maxParts that of allocations and of programs in one.
	maxCalls, maxOpen, maxParts = 1 << 16, 16, 256
)

// A splitter splits events into operations, and numbers these from 1.
//
// The library reports no begin and no end of an operation. An operation is the events of a thread
// one after the other from the same line of the user's code, until a program runs or an
// allocation fails. The same allocation again is another call.
type splitter struct {
	calls map[uint64]*call
	// open are the latest operations of the threads, in order of their begin.
	open  []*operation
	count int
	// ended is called with an operation to which no more events can belong.
	ended func(*operation)
}

// of returns the operation that an event belongs to; nil if it belongs to none, as frees do, which
// have no call stacks.
func (s *splitter) of(e *event.Event) *operation {
	switch {
	case e.Kind == event.Alloc || isCompiled(e):
		if e.Stack == nil || e.BeforeAttach || e.Reread {
			return nil
		}
	case e.Kind == event.ProgramRun, e.Kind == event.AllocFailed, e.Kind == event.OperationFailed:
	default:
		return nil
	}
	of, c := thread{e.PID, e.TID}, s.call(e.Stack)
	op := s.in(of)
	if op == nil || op.key != c.key || op.isOver(e) {
		if isCompiled(e) { // before the program runs, or long after
			return nil
		}
		s.end(op)
		if len(s.open) == maxOpen {
			s.end(s.open[0])
		}
		s.count++
		op = &operation{id: s.count, call: c, thread: of, comm: e.Comm}
		s.open = append(s.open, op)
	}
	op.add(e)
	return op
}

// isCompiled reports whether an event is from the compilation of a program.
func isCompiled(e *event.Event) bool { return e.Kind == event.CBAlloc || e.Kind == event.KernelLoad }

// in returns the operation that may continue in a thread; nil if there is none.
func (s *splitter) in(of thread) *operation {
	for _, op := range s.open {
		if op.thread == of {
			return op
		}
	}
	return nil
}

// end ends an operation.
func (s *splitter) end(op *operation) {
	if op == nil {
		return
	}
	s.open = slices.DeleteFunc(s.open, func(one *operation) bool { return one == op })
	if s.ended != nil {
		s.ended(op)
	}
}

// endAll ends all operations.
func (s *splitter) endAll() {
	for len(s.open) > 0 {
		s.end(s.open[0])
	}
}

// call returns what a call stack says. Programs run the same ones again and again.
func (s *splitter) call(stack *event.Stack) *call {
	id := memory.StackID(stack)
	c := s.calls[id]
	if c == nil {
		if s.calls == nil || len(s.calls) == maxCalls {
			s.calls = make(map[uint64]*call)
		}
		c = newCall(stack)
		s.calls[id] = c
	}
	return c
}

// isOver reports whether an event from the same line belongs to a later operation.
func (op *operation) isOver(e *event.Event) bool {
	ran := len(op.ran) > 0
	switch {
	case op.failed, len(op.allocations) == maxParts, len(op.programs) == maxParts, len(op.ran) >= maxParts:
		return true
	case e.Kind == event.Alloc:
		return ran || slices.Contains(op.allocations, memory.StackID(e.Stack))
	case e.Kind == event.AllocFailed, e.Kind == event.OperationFailed:
		return ran
	case e.Kind == event.ProgramRun: // a mesh may have a program for each chip
		return slices.ContainsFunc(e.Devices, func(id int) bool { return slices.Contains(op.ran, id) })
	}
	return ran && !slices.Contains(op.programs, e.ProgramID) // compiled when it runs, or before
}

// add adds an event.
func (op *operation) add(e *event.Event) {
	switch e.Kind {
	case event.Alloc:
		op.allocations = append(op.allocations, memory.StackID(e.Stack))
	case event.AllocFailed, event.OperationFailed:
		op.failed = true
	default:
		if !slices.Contains(op.programs, e.ProgramID) {
			op.programs = append(op.programs, e.ProgramID)
		}
		if e.Kind == event.ProgramRun {
			op.ran = append(op.ran, e.Devices...)
		}
	}
}
