package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
)

// listedFailures is the number of failures shown without -n.
const listedFailures = 10

// newOOM returns the command oom. kept is the folder in which the installed service keeps recordings.
func newOOM(kept string) *cobra.Command {
	var o viewOptions
	changes := make(map[string]*[]string)
	c := &cobra.Command{
		Use:   "oom [FILE | DIR | -- COMMAND]",
		Short: "Show why allocations failed, and what to free",
		Long: `Shows each failed allocation: its size and line, the free memory in each bank, why it failed,
and what to free or set so that it fits. Exceeded limits of L1 are shown, too, and operations that
failed for other reasons at the end.

FILE is a recording; DIR is a folder of --crash-dir, of which the newest recording is shown; COMMAND
is run and traced to its end. Otherwise, the failures come from the host's service (ttmem serve) or,
if it has seen none, from the newest recording of the installed service. Without a service, as root,
running processes are watched until Ctrl-C.

Advice about a recording is proved: its allocations are replayed. Flags replay other changes, all
together; each may be repeated. docs/oom.md explains them.`,
		Example: `  ttmem oom model.ttmem
  ttmem oom -- python model.py
  sudo ttmem oom                          the newest on this host
  ttmem oom model.ttmem --without model.py:31 --set l1_small_size=32KiB
  ttmem oom --json | jq '.failures[] | {reason, name, needed_bytes_per_bank}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return runOOM(&o, changes, kept) },
	}
	o.source.RegisterRun(c)
	o.source.Owners = true
	flags.Limit(c, &o.n, listedFailures)
	for _, one := range oom.Changes {
		changes[one.Flag] = c.Flags().StringArray(one.Flag, nil, one.Usage)
		flags.Complete(c, one.Flag, one.Values)
	}
	flags.Takes(c, flags.Color, flags.JSON, flags.UTC)
	return c
}

func runOOM(o *viewOptions, changes map[string]*[]string, kept string) error {
	if err := flags.CheckLimit(o.n); err != nil {
		return err
	}
	values := make(map[string][]string)
	for flag, list := range changes {
		values[flag] = *list
	}
	whatIf, err := oom.NewWhatIf(values)
	if err != nil {
		return err
	}
	o.source.StateOnly = len(o.source.PIDs) == 0
	s, err := o.failures(kept)
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
		p.Large = isLarge(p.File)
	}
	p.Choose()
	if source.IsOwn(w.Of) {
		if err := source.CheckPIDs(p.PIDs, snap, w.Of); err != nil {
			return err
		}
		if p.Of = "in your processes on this host"; len(p.PIDs) > 0 {
			p.Of = "on this host"
		}
	}
	if len(p.Failures) == 0 {
		if err := o.source.Missing(); err != nil {
			return err
		}
	}
	if err := o.addHolders(p, s); err != nil {
		return err
	}
	if p.WhatIf = whatIf; whatIf != nil && p.File == "" {
		return fmt.Errorf("to replay %s needs a recording, which is read twice: `ttmem run -o FILE -- COMMAND` makes one", whatIf.Text)
	}
	if err := p.Prove(o.play(p.File)); err != nil {
		return err
	}
	if whatIf != nil {
		if err := whatIf.Missing(); err != nil {
			return err
		}
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), snap), "failures"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "failures may be missing, and figures wrong"))
}

// play returns a function that plays all events of a recording; nil without one. A file that is damaged at its beginning
// has none, which is no reason to show nothing.
func (o *viewOptions) play(path string) func(handle func(*event.Event)) error {
	if path == "" {
		return nil
	}
	return func(handle func(*event.Event)) error {
		r := &source.Recording{Path: path, PIDs: o.source.PIDs, Whole: true}
		if _, err := r.Watch(handle); errors.Is(err, term.ErrInterrupted) {
			return err
		}
		return nil
	}
}

// addHolders adds who held the buffers when allocations failed: in a recording at that moment,
// otherwise of the buffers that are still live.
func (o *viewOptions) addHolders(p *oom.Page, now *source.State) error {
	if p.File == "" {
		owned := now.Owned()
		p.Holders = func(*memory.Failure) []memory.Buffer { return owned }
		return nil
	}
	recording := &source.Recording{Path: p.File, PIDs: o.source.PIDs}
	held := make(map[*memory.Failure][]memory.Buffer)
	for _, f := range p.Explained(listedFailures) {
		at := moment.Moment{Kind: moment.AtPoint, Point: memory.Point{TimeNs: f.TimeNs}}
		_, err := recording.StateAt(at, func(s *source.State, _ moment.Regions) { held[f] = s.Owned() })
		if errors.Is(err, term.ErrInterrupted) {
			return err
		}
		// A file that is damaged before the failure has no holders of it, which is no reason to show nothing.
	}
	p.Holders = func(f *memory.Failure) []memory.Buffer { return held[f] }
	return nil
}

// failures returns the state with the failures: of the source that was chosen or, if that is the host and
// there is no failure, of the newest recording in the folder kept.
func (o *viewOptions) failures(kept string) (*source.State, error) {
	src, newest := &o.source, ""
	if info, err := os.Stat(src.File); err == nil && info.IsDir() {
		if newest = record.NewestFailure(src.File); newest == "" {
			return nil, fmt.Errorf("%s has no recording of a failed allocation: name a folder of --crash-dir, or a file", src.File)
		}
		src.File = newest
		return src.Seen()
	}
	if src.File == "" && len(src.Command) == 0 && len(src.PIDs) == 0 && flags.IsUsualSocket(src.Socket) {
		newest = record.NewestFailure(kept)
	}
	if newest != "" {
		client, err := service.Dial(src.Socket)
		if err != nil {
			src.File = newest
			return src.Seen()
		}
		client.Close()
	}
	s, err := src.Seen()
	if err == nil && newest != "" && s.Totals().FailureCount == 0 {
		src.File = newest
		return src.Seen()
	}
	return s, err
}
