package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/newest"
	"ttmem/aggregate/operations"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// An operation is one call stack of a process that runs programs on the same chips.
type operation struct {
	set *deviceSet
	memory.Operation
}

// Origin returns the user of the operation, and when it last ran.
func (o *operation) Origin() (sharer int, number uint64) { return o.set.process.sharer(), o.LastNs }

// maxOperations is the number of operations that a State keeps. If there are more, it keeps the
// latest ones, the same number for each user.
const maxOperations = 4096

// operation returns the operation of the event's call stack, and creates it if needed.
func (s *State) operation(d *deviceSet, e *event.Event) *operation {
	id := memory.StackID(e.Stack)
	op := d.operations[id]
	if op == nil {
		if len(s.operations) == 2*maxOperations {
			s.forgetOperations()
		}
		op = &operation{d, memory.Operation{PID: e.PID, Devices: d.ids, Stack: e.Stack, FirstNs: e.TimeNs}}
		d.operations[id] = op
		s.operations = append(s.operations, op)
		s.operationCount++
	}
	return op
}

// forgetOperations removes the operations that ran longest ago.
func (s *State) forgetOperations() {
	slices.SortStableFunc(s.operations, func(a, b *operation) int { return cmp.Compare(a.LastNs, b.LastNs) })
	kept, dropped := newest.Shared(s.operations, maxOperations)
	gone := make(map[*operation]bool)
	for _, op := range dropped {
		delete(op.set.operations, memory.StackID(op.Stack))
		gone[op] = true
	}
	s.operations = kept
	s.forgetRuns(func(op *operation) bool { return gone[op] })
}

// raise takes a sample of the operation. Those of several chips come in any order.
func (o *operation) raise(use *memory.CoreUse) {
	if most := &o.Peak; most.TimeNs == 0 || cmp.Or(cmp.Compare(most.Bytes(), use.Bytes()),
		cmp.Compare(use.TimeNs, most.TimeNs), cmp.Compare(use.Device, most.Device)) < 0 {
		*most = *use
	}
}

// parts returns the memory of the program in L1 outside of tensors.
func (g *program) parts() (parts []operations.Part) {
	for _, entry := range g.static {
		if !entry.global {
			parts = append(parts, operations.Part{Place: entry.place, Kind: entry.kind})
		}
	}
	return parts
}

// Operations returns the call stacks that ran programs, the latest ones if there are many;
// others is the number of the rest.
func (s *State) Operations() (list []memory.Operation, others uint64) {
	s.settle()
	for _, op := range s.operations {
		list = append(list, op.Operation)
	}
	return list, s.operationCount - uint64(len(list))
}

// RestartOperations makes the state forget what operations did so far.
func (s *State) RestartOperations() {
	for _, op := range s.operations {
		clear(op.set.operations)
	}
	s.operations, s.operationCount = nil, 0
	s.forgetRuns(func(*operation) bool { return true })
}

// operation writes or reads an operation.
func (c *stateCodec) operation(p **operation) {
	op := codec.Made(c.Codec, p)
	c.setOfProcess(&op.set)
	c.Value(&op.Operation)
	c.ran.Add(&op.Operation)
	if !c.Reads {
		return
	}
	id := memory.StackID(op.Stack)
	if c.Bad || op.PID != op.set.process.pid {
		c.Fail()
		return
	}
	op.set.operations[id] = op // the stacks of two may be the same here: see site
}
