package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/phases"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	page_phases "ttmem/cmd/ttmem/internal/page/phases"
	"ttmem/cmd/ttmem/internal/source"
)

func newPhases() *cobra.Command {
	var o viewOptions
	depth := 0
	c := &cobra.Command{
		Use:   "phases [FILE | -- COMMAND]",
		Short: "Divide a run by the calls of the main script",
		Long: `Divides a run, without marks, by the outermost calls of its own code, such as forward, backward and
optimizer.step of a training loop. For each, it shows how often and how long it ran, the peak of each
region during that time, and the memory that it left allocated.

FILE is a recording; COMMAND is run and traced to its end. Without either, running processes are
watched until Ctrl-C, through the host's service (ttmem serve), or one of sudo. docs/phases.md explains
the page.`,
		Example: `  ttmem phases model.ttmem
  ttmem phases model.ttmem --depth 3
  ttmem phases -- python model.py
  ttmem phases model.ttmem --json | jq '.phases[] | {file, line, calls, peaks}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return showPhases(&o, depth) },
	}
	o.source.RegisterWatch(c)
	c.Flags().IntVar(&depth, "depth", 0, "levels of nested calls to show (default: the longest phases are divided)")
	flags.Takes(c, flags.Color, flags.JSON, flags.UTC)
	return c
}

func showPhases(o *viewOptions, depth int) error {
	if depth < 0 {
		return fmt.Errorf("--depth %d: give a number from 1 on", depth)
	}
	state := aggregate.New()
	tree := phases.New(state)
	w, err := o.source.Watch(moment.Selected(o.source.PIDs, state.Completed(tree.Event)))
	if err != nil {
		return err
	}
	state.Settle()
	snap := state.Snapshot()
	if err := source.CheckPIDs(o.source.PIDs, snap, source.In(w.Of)); err != nil {
		return cmp.Or(o.source.Missing(), err)
	}
	p := &page_phases.Page{Of: source.In(w.Of), Depth: depth, Phases: tree.End(), Full: tree.Full, Snapshot: snap, Notes: w.Notes}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), snap), "phases"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(snap.Losses(false, o.source.PIDs), "phases may be wrong"))
}
