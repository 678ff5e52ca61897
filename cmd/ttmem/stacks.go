package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/tracer"
	"ttmem/tracer/stack"
)

// stackOptions are the flags that say which call stacks are taken, and how they
// are shown.
type stackOptions struct {
	none, ofFrees, fullNames bool
	nativeFrames             string
	// markAt are the functions whose calls are marks.
	markAt []string
}

// The values of --native-frames.
const (
	foldedFrames = "folded"
	allFrames    = "all"
)

func (o *stackOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.none, "no-stacks", false, "take no call stacks")
	f.BoolVar(&o.ofFrees, "free-stacks", false, "take the call stacks of frees as well as those of allocations")
	f.BoolVar(&o.fullNames, "full-names", false, "name C++ functions with their parameters and template arguments")
	f.StringVar(&o.nativeFrames, "native-frames", foldedFrames,
		"`WHICH` native frames stacks show: folded (without the Python interpreter's own), all")
	_ = c.RegisterFlagCompletionFunc("native-frames",
		cobra.FixedCompletions([]string{foldedFrames, allFrames}, cobra.ShellCompDirectiveNoFileComp))
}

// check finds what is wrong with the flags before anything starts.
func (o *stackOptions) check(c *cobra.Command) error {
	if !slices.Contains([]string{foldedFrames, allFrames}, o.nativeFrames) {
		return fmt.Errorf("--native-frames: %q is neither %s nor %s", o.nativeFrames, foldedFrames, allFrames)
	}
	if o.none {
		for _, flag := range []string{"free-stacks", "full-names", "native-frames"} {
			if c.Flags().Changed(flag) {
				return errors.New("--" + flag + " is about call stacks: leave out --no-stacks")
			}
		}
	}
	return nil
}

// apply sets what the tracer is to do.
func (o *stackOptions) apply(t *tracer.Options) {
	t.NoStacks, t.FreeStacks, t.FullNames = o.none, o.ofFrees, o.fullNames
	t.AllFrames = o.nativeFrames == allFrames
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
