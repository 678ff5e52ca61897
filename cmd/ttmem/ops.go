package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/ops"
	"ttmem/cmd/ttmem/source"
)

// listedOperations is the number of operations shown without -n.
const listedOperations = 20

// opsOptions are the flags of ops.
type opsOptions struct {
	viewOptions
	from string
}

func newOps() *cobra.Command {
	var o opsOptions
	c := &cobra.Command{
		Use:   "ops [FILE | -- COMMAND]",
		Short: "List operations by how little of L1 they left free",
		Long: `Lists each operation that ran a program, with the core whose L1 had the least room then:
tensors, circular buffers (CBs), dataflow buffers (DFBs) and scratchpads on it, what was free,
and how many programs the operation ran. Runs from the program cache count like others.

FILE is a recording. Without it COMMAND is run and traced to its end. Without both, the host's
service (ttmem serve) shows what it has seen or, as root without a service, what runs is watched
until Ctrl-C. docs/ops.md explains the columns.`,
		Example: `  ttmem ops model.ttmem
  ttmem ops model.ttmem --from warm --to trained -n 0
  sudo ttmem ops -- python model.py
  sudo ttmem ops -p 4242
  ttmem ops model.ttmem --json | jq '.operations[] | {name, runs, peak}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return listOperations(&o) },
	}
	o.source.RegisterRun(c)
	flags.From(c, &o.from, "begin")
	flags.To(c, &o.at, "end", "end", "peak")
	flags.Limit(c, &o.n, listedOperations)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules)
	return c
}

func listOperations(o *opsOptions) error {
	to, err := o.moment("to", "list")
	if err != nil {
		return err
	}
	from, err := o.begin()
	if err != nil {
		return err
	}
	filter, rules, err := o.check(alloc.Regions)
	if err != nil {
		return err
	}
	p := ops.New(ops.Options{Limit: o.n, Filter: filter, Rules: rules})
	w, err := o.readOperations(from, to, p)
	if err != nil {
		return err
	}
	if err := source.CheckPIDs(o.source.PIDs, p.Snapshot, w.Of); err != nil {
		return cmp.Or(o.source.Missing(), err)
	}
	p.Of, p.Others, p.Notes = w.Of, w.Others, w.Notes
	if from.Text != "" {
		p.Of += ", from " + from.Text
	}
	if !to.AtEnd() {
		p.Of += ", to " + to.Text
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), p.Snapshot), "operations"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "operations may be missing, and figures wrong"))
}

// begin returns the moment of --from; its text is empty if all runs count.
func (o *opsOptions) begin() (from source.Moment, err error) {
	if o.from == "" {
		return from, nil
	}
	if from, err = source.ParseMoment("from", o.from); err != nil {
		return from, err
	}
	switch from.Kind {
	case source.Unfreed, source.End, source.Peak:
		return from, fmt.Errorf("--from %s: give begin, failure, a mark, or a time such as 2.5s; mark:%s is a mark of that name", o.from, o.from)
	}
	if o.source.File == "" {
		return from, errors.New("--from is a moment of a recording: leave it out for running processes")
	}
	return from, nil
}

// readOperations adds the operations to the page.
func (o *opsOptions) readOperations(from, to source.Moment, p *ops.Page) (*source.Summary, error) {
	if o.source.File != "" {
		return o.readRecording(from, to, p)
	}
	s, err := o.source.Seen()
	if err == nil {
		err = s.Select(o.source.PIDs)
	}
	if err != nil {
		return nil, err
	}
	p.Add(s.State, source.EveryRegion)
	p.Snapshot = s.Snapshot()
	return &s.Summary, nil
}

// readRecording adds the operations of a recording that ran between two moments.
func (o *opsOptions) readRecording(from, to source.Moment, p *ops.Page) (w *source.Summary, err error) {
	recording := source.Recording{Path: o.source.File, PIDs: o.source.PIDs}
	if from.Text == "" {
		err = recording.StateAt(to, p.Add)
	} else {
		err = recording.StateFrom(from, to, (*aggregate.State).RestartOperations, p.Add)
	}
	if err != nil {
		return nil, cmp.Or(o.source.Missing(), err)
	}
	end, w, err := recording.End()
	if err != nil {
		return nil, err
	}
	p.Snapshot, w.Of = end.Snapshot(), w.In()
	return w, nil
}
