package source

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer"
)

// Stacks select which call stacks are taken, how much of them is kept, whether the buffers that programs use are
// read, and when the owners of buffers are searched.
type Stacks struct {
	none, noFrees, full, noUses bool
	owners                      string // one of ownersAt; "": not registered
}

// ownersAt are the moments at which owners are searched besides those at which they always are.
var ownersAt = []string{"peaks", "marks", "never"}

// Register adds the flag of commands that trace.
func (o *Stacks) Register(c *cobra.Command) {
	c.Flags().BoolVar(&o.none, "no-stacks", false, "record no call stacks")
	c.Flags().BoolVar(&o.noFrees, "no-free-stacks", false, "record no call stacks of frees")
	_ = c.Flags().MarkHidden("no-free-stacks") // for measurements: docs/stacks.md
	c.Flags().BoolVar(&o.noUses, "no-uses", false, "record no buffers that programs use")
	_ = c.Flags().MarkHidden("no-uses") // for measurements: `make bench`
}

// RegisterKept adds the flags of commands that keep what they trace.
func (o *Stacks) RegisterKept(c *cobra.Command) {
	o.Register(c)
	c.Flags().BoolVar(&o.full, "full-stacks", false, "keep the interpreter's frames and whole C++ names in call stacks")
}

// RegisterMore adds the flags of commands that also search owners: for the whole host, they are searched when asked for.
func (o *Stacks) RegisterMore(c *cobra.Command) {
	o.RegisterKept(c)
	c.Flags().StringVar(&o.owners, "owners", ownersAt[0], "search the owners of buffers `WHEN`: at new peaks, also at marks, or never (peaks|marks|never)")
	_ = c.RegisterFlagCompletionFunc("owners", cobra.FixedCompletions(ownersAt, cobra.ShellCompDirectiveNoFileComp))
}

// Check finds flags that contradict each other before anything starts.
func (o *Stacks) Check() error {
	if o.none && o.full {
		return errors.New("--full-stacks needs call stacks: leave out --no-stacks")
	}
	if o.owners != "" && !slices.Contains(ownersAt, o.owners) {
		return fmt.Errorf("--owners %s: choose peaks, marks or never", o.owners)
	}
	return nil
}

// checkService finds flags that the host's service cannot follow: it has its own.
func (o *Stacks) checkService() error {
	if o.none || o.noFrees || o.noUses || o.full {
		return errors.New("the host's service traces, with its own choice of call stacks: leave out the flags about them, or run ttmem as root")
	}
	return nil
}

// ownersBy returns the moments at which a service searches owners for the flags; "": at none. It warns if the service
// searches none at these.
func (o *Stacks) ownersBy(client *service.Client, warn func(string)) string {
	switch {
	case o.owners == "" || o.owners == "never":
		return ""
	case !client.SearchesAt(o.owners):
		warn(fmt.Sprintf("the ttmem service at %s is of another version, and searches no owners at %s", client.Path(), o.owners))
		return ""
	}
	return o.owners
}

// flags returns the flags of a service that does the same. Owners are searched for its streams.
func (o *Stacks) flags() (flags []string) {
	for _, f := range []struct {
		set  bool
		name string
	}{{o.none, "--no-stacks"}, {o.noFrees, "--no-free-stacks"}, {o.noUses, "--no-uses"}, {o.full, "--full-stacks"}} {
		if f.set {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// Apply sets the tracer's options.
func (o *Stacks) Apply(t *tracer.Options) {
	t.NoStacks, t.FreeStacks, t.FullNames, t.AllFrames = o.none, !o.noFrees, o.full, o.full
	t.NoUses = o.noUses
	t.OwnersAtMarks = o.owners == "marks"
	t.OwnersAtPeaks = t.OwnersAtMarks || o.owners == "peaks"
}

// StackCounts returns the counts of a tracer; nil if it took no stacks.
func StackCounts(t *tracer.Tracer) *memory.Stacks {
	native, python := t.StackEnds()
	s := memory.Stacks{Incomplete: make(map[string]uint64), IncompletePython: make(map[string]uint64)}
	for cause, n := range native {
		s.Taken += n
		if cause != tracer.CompleteStack {
			s.Incomplete[cause] = n
		}
	}
	for cause, n := range python {
		switch cause {
		case tracer.NoPython:
		case tracer.CompletePython:
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
