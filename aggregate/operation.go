package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/memory"
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

// operations are the call stacks that ran programs. count includes those that were removed since, and forgot is how often
// some were.
type operations struct {
	list          []*operation
	count, forgot uint64
}

// maxOperations is the number of operations that a State keeps. If there are more, it keeps the
// latest ones, the same number for each user.
const maxOperations = 4096

// operation returns the operation of the event's call stack, and creates it if needed.
func (s *State) operation(d *deviceSet, e *event.Event) *operation {
	id := memory.StackID(e.Stack)
	op := d.operations[id]
	if op == nil {
		if len(s.operations.list) == 2*maxOperations {
			s.forgetOperations()
		}
		op = &operation{d, memory.Operation{PID: e.PID, Devices: d.ids, Stack: e.Stack, FirstNs: e.TimeNs}}
		d.operations[id] = op
		s.operations.list = append(s.operations.list, op)
		s.operations.count++
	}
	return op
}

// forgetOperations removes the operations that ran longest ago.
func (s *State) forgetOperations() {
	slices.SortStableFunc(s.operations.list, func(a, b *operation) int { return cmp.Compare(a.LastNs, b.LastNs) })
	kept, dropped := newest.Shared(s.operations.list, maxOperations)
	gone := make(map[*operation]bool)
	for _, op := range dropped {
		delete(op.set.operations, memory.StackID(op.Stack))
		gone[op] = true
	}
	s.operations.list = kept
	s.operations.forgot++
	s.forgetRuns(func(op *operation) bool { return gone[op] })
}

// raise takes a sample of the operation. Those of several chips come in any order.
func (o *operation) raise(use *memory.CoreUse) {
	if most := &o.Peak; most.TimeNs == 0 || cmp.Or(cmp.Compare(most.Bytes(), use.Bytes()),
		cmp.Compare(use.TimeNs, most.TimeNs), cmp.Compare(use.Device, most.Device)) < 0 {
		*most = *use
	}
}

// Operations returns the call stacks that ran programs, the latest ones if there are many;
// others is the number of the rest.
func (s *State) Operations() (list []memory.Operation, others uint64) {
	s.settle()
	for _, op := range s.operations.list {
		list = append(list, op.Operation)
	}
	return list, s.operations.count - uint64(len(list))
}

// RestartOperations makes the state forget what operations did so far, temporary allocations included.
func (s *State) RestartOperations() {
	for _, op := range s.operations.list {
		clear(op.set.operations)
	}
	s.operations = operations{forgot: s.operations.forgot + 1}
	s.restartTemporaries()
	s.forgetRuns(func(*operation) bool { return true })
}

// code writes or reads the operations.
func (o *operations) code(c *stateCodec) {
	codec.ListUpTo(c.Codec, &o.list, 2*maxOperations, func(p **operation) {
		op := codec.Made(c.Codec, p)
		c.setOfProcess(&op.set)
		c.Value(&op.Operation)
		c.ran.Add(&op.Operation)
		if c.Reads && (c.Bad || op.PID != op.set.process.pid) {
			c.Fail()
		} else if c.Reads {
			op.set.operations[memory.StackID(op.Stack)] = op // the stacks of two may be the same here: see site
		}
	})
	c.Uint(&o.count)
}
