package main

import (
	"errors"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/tracer"
	"ttmem/tracer/stack"
)

// stackOptions say which call stacks are taken, and how they are shown.
type stackOptions struct {
	none, ofFrees, full bool
	// markAt are the functions whose calls are marks.
	markAt []string
}

// register makes the flag of commands that trace.
func (o *stackOptions) register(c *cobra.Command) {
	c.Flags().BoolVar(&o.none, "no-stacks", false, "take no call stacks")
}

// registerMore makes the flags of commands that keep what they trace.
func (o *stackOptions) registerMore(c *cobra.Command) {
	o.register(c)
	c.Flags().BoolVar(&o.ofFrees, "free-stacks", false, "take call stacks of frees, too")
	c.Flags().BoolVar(&o.full, "full-stacks", false, "keep the Python interpreter's frames, and whole C++ names")
}

// check finds flags that contradict each other before anything starts.
func (o *stackOptions) check() error {
	switch {
	case o.none && o.ofFrees:
		return errors.New("--free-stacks takes call stacks: leave out --no-stacks")
	case o.none && o.full:
		return errors.New("--full-stacks takes call stacks: leave out --no-stacks")
	}
	return nil
}

// apply sets what the tracer does.
func (o *stackOptions) apply(t *tracer.Options) {
	t.NoStacks, t.FreeStacks, t.FullNames, t.AllFrames = o.none, o.ofFrees, o.full, o.full
	t.MarkAt = o.markAt
}

// stackCounts are those of a trace; nil where no stacks were taken.
func stackCounts(t *tracer.Tracer) *aggregate.Stacks {
	native, python := t.StackEnds()
	s := aggregate.Stacks{Incomplete: make(map[string]uint64), IncompletePython: make(map[string]uint64)}
	for cause, n := range native {
		s.Taken += n
		if cause != stack.CompleteStack {
			s.Incomplete[cause] = n
		}
	}
	for cause, n := range python {
		switch cause {
		case stack.NoPython:
		case stack.CompletePython:
			s.Python += n
		default:
			s.Python += n
			s.IncompletePython[cause] = n
		}
	}
	if s.Taken == 0 {
		return nil
	}
	return &s
}
