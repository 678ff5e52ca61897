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
func (o *operation) Origin() (uid int, number uint64) { return o.set.process.about.UID, o.LastNs }

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
	for _, op := range dropped {
		delete(op.set.operations, memory.StackID(op.Stack))
		if op.Runs > 0 {
			op.set.reporting--
		}
	}
	s.operations = kept
}

// runProgram counts a program that is enqueued. If its circular buffers come later, because it is
// compiled now, placed counts them.
func (s *State) runProgram(e *event.Event) {
	d := s.set(s.process(e), e.Devices)
	op := s.operation(d, e)
	if op.Runs == 0 {
		d.reporting++
	}
	op.Runs, op.LastNs = op.Runs+1, e.TimeNs
	for _, c := range d.chips {
		r := operations.Run{Of: &op.Operation, TimeNs: e.TimeNs, TensorBytes: c.used.Regions[event.L1].PerBank}
		g := c.programs[e.ProgramID]
		if g != nil {
			g.run = r
		} else {
			c.awaited.Add(e.ProgramID, r)
			g = &program{run: r}
		}
		c.ran(e.ProgramID, g)
	}
}

// placed counts a circular buffer for the operation that runs its program. If the library or the
// program reports no runs, it counts for its own call stack.
func (s *State) placed(d *deviceSet, c *processChip, e *event.Event) {
	g := c.programs[e.ProgramID]
	if g.run.Of == nil {
		if e.Stack == nil || d.reporting > 0 {
			return // an event of the program's run counts it
		}
		op := s.operation(d, e)
		op.LastNs = e.TimeNs
		g.run = operations.Run{Of: &op.Operation, TimeNs: e.TimeNs, TensorBytes: c.used.Regions[event.L1].PerBank}
	}
	c.ran(e.ProgramID, g)
}

// ran updates the peak of the operation that runs a program.
func (c *processChip) ran(id uint64, g *program) {
	use := g.l1.Use(g.parts, &c.used.Load)
	use.TensorBytes += g.run.TensorBytes
	if peak := &g.run.Of.Peak; peak.TimeNs == 0 || use.Bytes() > peak.Bytes() {
		use.TimeNs, use.ProgramID, use.Device = g.run.TimeNs, id, c.chip.id
		use.CapacityBytes = c.capacities()[event.L1].BytesPerBank
		*peak = use
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
	for _, op := range s.operations {
		list = append(list, op.Operation)
	}
	return list, s.operationCount - uint64(len(list))
}

// RestartOperations makes the state forget what operations did so far.
func (s *State) RestartOperations() {
	for _, op := range s.operations {
		clear(op.set.operations)
		op.set.reporting = 0
	}
	s.operations, s.operationCount = nil, 0
	for _, p := range s.processes {
		for _, c := range p.chips {
			c.awaited = nil
			for _, g := range c.programs {
				g.run = operations.Run{}
			}
		}
	}
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
	if op.Runs > 0 {
		op.set.reporting++
	}
}
