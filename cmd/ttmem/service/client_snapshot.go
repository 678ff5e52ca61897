package service

import (
	"context"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// Snapshot is what the user is shown of the present state.
func (c *Client) Snapshot(ctx context.Context) (*aggregate.Snapshot, error) {
	var s snapshotDocument
	if err := c.document(ctx, "snapshot", &s); err != nil {
		return nil, err
	}
	return s.snapshot(), nil
}

// The documents have the fields of what they embed, but for those with a stack: a
// Stack writes itself, and is read as the frames that it wrote.
type (
	snapshotDocument struct {
		aggregate.Snapshot
		Processes []processDocument `json:"processes"`
		Failures  []failureDocument `json:"failures"`
	}
	processDocument struct {
		aggregate.Process
		Held []leftDocument `json:"held"`
		Left []leftDocument `json:"left"`
	}
	leftDocument struct {
		aggregate.Left
		Holders []holderDocument `json:"holders"`
	}
	holderDocument struct {
		aggregate.Holder
		Stack frames `json:"stack"`
	}
	failureDocument struct {
		aggregate.Failure
		Stack frames `json:"stack"`
	}
	frames []event.Frame
)

func (f frames) stack() *event.Stack {
	if f == nil {
		return nil
	}
	return event.StackOf(f)
}

func (d *snapshotDocument) snapshot() *aggregate.Snapshot {
	s := &d.Snapshot
	s.Processes, s.Failures = []aggregate.Process{}, []aggregate.Failure{}
	for i := range d.Processes {
		p := d.Processes[i].Process
		p.Held, p.Left = lefts(d.Processes[i].Held), lefts(d.Processes[i].Left)
		s.Processes = append(s.Processes, p)
	}
	for i := range d.Failures {
		f := d.Failures[i].Failure
		f.Stack = d.Failures[i].Stack.stack()
		s.Failures = append(s.Failures, f)
	}
	return s
}

func lefts(documents []leftDocument) []aggregate.Left {
	var list []aggregate.Left
	for _, d := range documents {
		l := d.Left
		for _, h := range d.Holders {
			h.Holder.Stack = h.Stack.stack()
			l.Holders = append(l.Holders, h.Holder)
		}
		list = append(list, l)
	}
	return list
}
