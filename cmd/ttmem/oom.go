package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/oom"
	"ttmem/cmd/ttmem/source"
)

// listedFailures is how many failures are shown without -n.
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
		RunE: func(c *cobra.Command, args []string) error { return runOOM(c, &o, args) },
	}
	o.source.Register(c)
	flags.Limit(c, &o.n, listedFailures)
	flags.Takes(c, flags.Color, flags.JSON, flags.UTC)
	return c
}

func runOOM(c *cobra.Command, o *viewOptions, args []string) error {
	o.json, o.utc = flags.WantsJSON(c), flags.WantsUTC(c)
	if err := o.source.CheckWatch(c, args); err != nil {
		return err
	}
	if err := cmp.Or(flags.CheckLimit(o.n), o.source.CheckUTC(o.utc)); err != nil {
		return err
	}
	snap, w, err := readFailures(&o.source)
	if err != nil {
		return err
	}
	if o.json {
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
	if err := output.Print(p, o.json, o.source.Clock(), "failures"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "failures may be missing, and figures wrong"))
}

// readFailures reads the failures. A service has seen them: it is queried and not watched.
func readFailures(o *source.Options) (*memory.Snapshot, *source.Summary, error) {
	if o.File == "" && len(o.Command) == 0 {
		s, err := o.OfService()
		if err != nil {
			return nil, nil, err
		}
		if s != nil {
			snap := s.Snapshot()
			snap.TimeNs, s.Live = s.NowNs, true
			return snap, &s.Summary, nil
		}
	}
	s := aggregate.New()
	o.StateOnly = len(o.PIDs) == 0
	w, err := o.Watch(s.Apply)
	if err != nil {
		return nil, nil, err
	}
	if o.File != "" {
		s.Advance(w.EndNs)
	}
	w.Of = w.In()
	return s.Snapshot(), w, nil
}
