package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/oom"
	"ttmem/cmd/ttmem/term"
)

// oomOptions say which failures are shown, and how.
type oomOptions struct {
	source sourceOptions
	n      int
	json   bool
}

// listedFailures is how many failures are shown where nobody says.
const listedFailures = 10

func newOOM() *cobra.Command {
	var o oomOptions
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
  sudo ttmem oom -p 4242 --duration 1m
  ttmem oom model.ttmem -n 1              the last one
  ttmem oom --json | jq '.failures[] | {reason, name, needed_bytes_per_bank}'`,
		RunE: func(c *cobra.Command, args []string) error { return runOOM(c, &o, args) },
	}
	o.source.registerWatch(c)
	flags.Limit(c, &o.n, listedFailures)
	flags.Takes(c, flags.JSON)
	return c
}

func runOOM(c *cobra.Command, o *oomOptions, args []string) error {
	o.json = flags.WantsJSON(c)
	if err := o.source.checkWatch(c, args); err != nil {
		return err
	}
	if o.n < 0 {
		return fmt.Errorf("-n %d: must not be negative; 0 shows all", o.n)
	}
	snap, w, err := o.read()
	if err != nil {
		return err
	}
	if o.json {
		w.notes = page.WithOthers(w.notes, w.others)
	}
	p := &oom.Page{Of: w.of, Live: w.live, Limit: o.n, PIDs: o.source.pids, Others: w.others, Notes: w.notes, Snapshot: snap}
	if o.source.file != "" && readOnce(o.source.file) == nil {
		p.File = o.source.file
	}
	p.Choose()
	if len(p.Failures) == 0 {
		if err := o.source.missing(); err != nil {
			return err
		}
	}
	if err := printView(p, o.json, "failures"); err != nil {
		return err
	}
	for _, note := range w.notes {
		term.Warn(note)
	}
	if n := snap.LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("failures may be missing, and figures wrong: %s lost", page.Count(n, "event")))
	}
	return w.status()
}

// read is what there is of failures. A service that runs has seen them: it is asked,
// and not watched, unless a time is given.
func (o *oomOptions) read() (*aggregate.Snapshot, *watched, error) {
	if o.source.file == "" && len(o.source.command) == 0 && o.source.duration == 0 {
		client, err := o.source.service()
		if err != nil {
			return nil, nil, err
		}
		if client != nil {
			defer client.Close()
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			p, err := presentOfService(ctx, client, o.source.socket)
			switch {
			case ctx.Err() != nil:
				return nil, nil, errors.New("interrupted")
			case err != nil:
				return nil, nil, err
			}
			snap := p.Snapshot()
			snap.TimeNs = p.nowNs
			return snap, &watched{of: p.of, notes: p.notes, others: p.others, failed: p.failed, live: true}, nil
		}
	}
	if o.source.file != "" && len(o.source.pids) == 0 {
		p, err := presentOfFile(o.source.file)
		if err != nil {
			return nil, nil, err
		}
		return p.Snapshot(), &watched{of: placeIn(shownName(o.source.file)), notes: p.notes, failed: p.failed}, nil
	}
	s := aggregate.New()
	w, err := o.source.watch(s.Apply, func() {})
	if err != nil {
		return nil, nil, err
	}
	w.of = w.in()
	return s.Snapshot(), w, nil
}
