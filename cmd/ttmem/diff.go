package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/diff"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	viewOptions
	from, to    string
	ignoreLines bool
	failAbove   flags.Size
}

func newDiff() *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff A B | diff FILE --from MARK [--to MARK]",
		Short: "Compare two recordings, or two moments of one",
		Long: `Shows what is allocated in B and not in A, or in other amounts, by call stack, with the
largest growth first.

A and B are recordings, compared at their ends with what was never freed, or --at another
moment; or two moments of one file, --from and --to. docs/diff.md explains moments, and which
call stacks are the same in both.`,
		Example: `  ttmem diff yesterday.ttmem today.ttmem
  ttmem diff yesterday.ttmem today.ttmem --at peak --by op
  ttmem diff model.ttmem --from warm --to trained
  ttmem diff loop.ttmem --from step#10 --to step#20 --fail-above 64KiB
  ttmem diff a.ttmem b.ttmem --json | jq '.groups[0]'`,
		RunE: func(c *cobra.Command, args []string) error { return runDiff(c, &o, args) },
		ValidArgsFunction: func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return source.CompleteRecordings(c, nil, text)
		},
	}
	flags.At(c, &o.at, "left")
	flags.From(c, &o.from, "begin", "peak")
	flags.To(c, &o.to, "left", "left", "end", "peak")
	flags.By(c, &o.by, "stack")
	c.Flags().BoolVar(&o.ignoreLines, "ignore-lines", false, "compare call stacks by function, whatever the lines")
	flags.PIDs(c, &o.source.PIDs)
	flags.Regions(c, &o.regions, alloc.RegionNames(alloc.Regions))
	flags.Grep(c, &o.grep)
	flags.FailAbove(c, &o.failAbove)
	flags.Limit(c, &o.n, 0)
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

// A diffSide is a side of a comparison that is read from a recording.
type diffSide struct {
	diff.Side
	at source.Moment
}

func newDiffSide(path string, at source.Moment) *diffSide {
	return &diffSide{diff.Side{Path: path, Moment: at.Text, When: at.String(), Unfreed: at.Kind == source.Unfreed}, at}
}

// sides are what the arguments and flags ask to compare.
func (o *diffOptions) sides(c *cobra.Command, args []string) (a, b *diffSide, err error) {
	marked := o.from != "" || c.Flags().Changed("to")
	switch {
	case len(args) == 0:
		return nil, nil, fmt.Errorf("missing files to compare: %s yesterday.ttmem today.ttmem", c.CommandPath())
	case len(args) > 2:
		return nil, nil, fmt.Errorf("two files at a time: %s A B", c.CommandPath())
	case len(args) == 2 && marked:
		return nil, nil, errors.New("--from and --to are of one file: for two, --at says at which moment of each")
	case len(args) == 1 && !marked:
		return nil, nil, fmt.Errorf("missing what to compare %s with: a second file, or two moments, --from MARK --to MARK", args[0])
	case len(args) == 1 && c.Flags().Changed("at"):
		return nil, nil, errors.New("--at is of two files: for one, give --from and --to")
	case len(args) == 1 && o.from == "":
		return nil, nil, errors.New("--to without --from: give both")
	}
	if len(args) == 2 {
		at, err := source.ParseMoment("at", o.at)
		if err != nil {
			return nil, nil, err
		}
		at.Last = true
		return newDiffSide(args[0], at), newDiffSide(args[1], at), nil
	}
	from, err := source.ParseMoment("from", o.from)
	if err != nil {
		return nil, nil, err
	}
	to, err := source.ParseMoment("to", o.to)
	if err != nil {
		return nil, nil, err
	}
	to.Last = true
	return newDiffSide(args[0], from), newDiffSide(args[0], to), nil
}

func runDiff(c *cobra.Command, o *diffOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	a, b, err := o.sides(c, args)
	if err != nil {
		return err
	}
	if err := flags.CheckBy(o.by); err != nil { // which may be ""
		return err
	}
	filter, rules, err := o.check(alloc.Regions)
	if err != nil {
		return err
	}
	w, err := readSides(filter.PIDs, a, b)
	if err != nil {
		return err
	}
	d := diff.New(&a.Side, &b.Side, alloc.Namer{Rules: rules, Filter: filter}, diff.Options{By: o.by, IgnoreLines: o.ignoreLines, Limit: o.n})
	if err := printView(d, o.json, "difference"); err != nil {
		return err
	}
	status := finish(w, nil)
	for _, side := range []*diffSide{a, b} {
		for _, doubt := range page.Doubts(side.Losses, "may lack buffers, or have too many") {
			term.Warn(side.Path + ": " + doubt)
		}
		if side.Path == b.Path {
			break
		}
	}
	if region, grown := d.Grown(); c.Flags().Changed("fail-above") && grown > int64(o.failAbove) {
		term.Warn(fmt.Sprintf("%s has grown by %s, which is over %s", region, page.Bytes(uint64(grown)), page.Bytes(uint64(o.failAbove))))
		return term.ExitStatus(3)
	}
	return status
}

// readSides reads both sides: two files at once, as each is read by one processor.
func readSides(pids []int, a, b *diffSide) (*source.Summary, error) {
	if a.Path == b.Path && a.at != b.at {
		return readSide(a.Path, pids, a, b)
	}
	if a.Path == b.Path {
		if err := source.ReadOnce(a.Path); err != nil {
			return nil, err
		}
	}
	var first *source.Summary
	var firstErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		first, firstErr = readSide(a.Path, pids, a)
	}()
	second, err := readSide(b.Path, pids, b)
	<-done
	if err := cmp.Or(firstErr, err); err != nil {
		return nil, err
	}
	return &source.Summary{Notes: slices.Concat(first.Notes, second.Notes), Failed: first.Failed || second.Failed}, nil
}

// readSide reads one file, for one side or both. What was never freed needs all events: a
// State forgets the call sites of processes that ended.
func readSide(path string, pids []int, sides ...*diffSide) (*source.Summary, error) {
	recording := source.Recording{Path: path}
	if slices.ContainsFunc(sides, func(side *diffSide) bool { return side.Unfreed }) {
		recording.Each = func(e *event.Event) {
			for _, side := range sides {
				if side.Unfreed {
					side.Parts.AddUnfreed(e)
				}
			}
		}
	}
	for _, side := range sides {
		if err := recording.StateAt(side.at, side.Parts.AddLive); err != nil {
			return nil, err
		}
	}
	end, summary, err := recording.End()
	if err != nil {
		return nil, err
	}
	snap := end.Snapshot()
	for _, side := range sides {
		side.Losses, side.Snap = snap.Losses(false, pids), snap
	}
	return summary, nil
}
