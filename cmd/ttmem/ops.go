package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/ops"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/tracer/event"
)

// listedOperations is the number of operations shown without -n.
const listedOperations = 20

func newOps() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "ops [FILE | -- COMMAND]",
		Short: "List operations, least free L1 first",
		Long: `Lists each operation that ran a program, with its L1 headroom on the fullest core: the
tensors, circular buffers (CBs), dataflow buffers (DFBs) and scratchpads there, the free memory,
and the number of programs that the operation ran. Runs from the program cache count too.

FILE is a recording; COMMAND is run and traced to its end. Without either, the operations come from
the host's service (ttmem serve) or, as root without a service, from running processes, watched until
Ctrl-C or for --duration. docs/ops.md explains the columns.`,
		Example: `  ttmem ops model.ttmem
  ttmem ops model.ttmem --from warm --to trained -n 0
  ttmem ops model.ttmem --within forward
  ttmem ops -- python model.py
  ttmem ops -p 4242
  ttmem ops model.ttmem --json | jq '.operations[] | {name, runs, peak}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return listOperations(&o) },
	}
	o.source.RegisterWatch(c)
	o.span.Register(c, "end")
	flags.Limit(c, &o.n, listedOperations)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules)
	return c
}

func listOperations(o *viewOptions) error {
	span, err := source.ParseSpan(o.source.File, o.span, moment.End)
	if err != nil {
		return err
	}
	span.To.Peaks = func(_ int, region event.Region) bool { return region == event.L1 }
	filter, rules, err := o.check(alloc.Regions)
	if err != nil {
		return err
	}
	p := ops.New(ops.Options{Limit: o.n, Filter: filter, Rules: rules})
	w, err := o.readOperations(span, p)
	if err != nil {
		return err
	}
	if err := source.CheckPIDs(o.source.PIDs, p.Snapshot, w.Of); err != nil {
		return cmp.Or(o.source.Missing(), err)
	}
	p.Of, p.Others, p.Notes = w.Of, w.Others, w.Notes
	if text := span.String(); text != "" {
		p.Of += ", " + text
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), p.Snapshot), "operations"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "operations may be missing, and figures wrong"))
}

// readOperations adds the operations that ran in a span to the page.
func (o *viewOptions) readOperations(span moment.Span, p *ops.Page) (end *source.State, err error) {
	add := func(s *source.State, of moment.Regions) { p.Add(s.State, of) }
	if o.span.From == "" && span.Within == "" {
		end, err = o.source.Watched(o.source.PIDs).StateAt(span.To, add)
	} else {
		var list moment.Intervals
		recording := o.source.Recording()
		if list, err = recording.Intervals(span); err == nil {
			p.Span = source.SpanOf(&span, list)
			end, err = recording.Play(span, list, func(s *aggregate.State, _ memory.Point) { s.RestartOperations() }, add)
		}
	}
	if err != nil {
		return nil, err
	}
	if end.File != nil {
		end.Of = source.In(end.File.Name)
	}
	p.Snapshot = end.Snapshot()
	return end, nil
}
