package main

import (
	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/oom"
	"ttmem/cmd/ttmem/source"
)

// listedFailures is the number of failures shown without -n.
const listedFailures = 10

func newOOM() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "oom [FILE | -- COMMAND]",
		Short: "Show why allocations failed, and what to free",
		Long: `Shows each allocation that failed: its size and line, what was free in each bank, why it
failed, and what to free for it to fit.

FILE is a recording. Without it COMMAND is run and traced to its end, or what runs already is
watched until Ctrl-C: through the host's service (ttmem serve), or as root.
docs/oom.md explains the reasons. The newest 1000 failures are kept.`,
		Example: `  ttmem oom model.ttmem
  sudo ttmem oom -- python model.py
  sudo ttmem oom -p 4242
  ttmem oom model.ttmem -n 1              the last one
  ttmem oom --json | jq '.failures[] | {reason, name, needed_bytes_per_bank}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return runOOM(&o) },
	}
	o.source.RegisterRun(c)
	flags.Limit(c, &o.n, listedFailures)
	flags.Takes(c, flags.Color, flags.JSON, flags.UTC)
	return c
}

func runOOM(o *viewOptions) error {
	if err := flags.CheckLimit(o.n); err != nil {
		return err
	}
	o.source.StateOnly = len(o.source.PIDs) == 0
	s, err := o.source.Seen()
	if err != nil {
		return err
	}
	snap, w := s.Snapshot(), &s.Summary
	snap.TimeNs = s.NowNs
	if o.format.JSON {
		w.Notes = page.WithOthers(w.Notes, w.Others)
	}
	p := &oom.Page{Of: w.Of, Live: w.Live, Limit: o.n, PIDs: o.source.PIDs, Others: w.Others, Notes: w.Notes, Snapshot: snap, Clock: o.source.Clock(), UTC: o.utc}
	if o.source.File != "" && source.ReadOnce(o.source.File) == nil {
		p.File = o.source.File
	}
	p.Choose()
	if len(p.Failures) == 0 {
		if err := o.source.Missing(); err != nil {
			return err
		}
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), snap), "failures"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "failures may be missing, and figures wrong"))
}
