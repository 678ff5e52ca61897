package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/peak"
	"ttmem/cmd/ttmem/internal/source"
)

// listedHolders is the number of lines for a peak without -n.
const listedHolders = 10

func newPeak() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "peak [FILE | -- COMMAND]",
		Short: "Show the peak of each region, and what used it",
		Long: `Shows the peak of each region of each chip, the call sites that used the region then, and its use
over time: in a whole run, or in a span of a recording (docs/phases.md).

FILE is a recording; COMMAND is run and traced to its end. Without either, running processes are
watched until Ctrl-C, through the host's service (ttmem serve), or one of sudo. docs/peak.md explains
the page.`,
		Example: `  ttmem peak model.ttmem
  ttmem peak -- python model.py
  ttmem peak -p 4242 --duration 1m
  ttmem peak model.ttmem --region L1 --by op -n 20
  ttmem peak model.ttmem --within forward
  ttmem peak model.ttmem --json | jq '.peaks[] | {region, bytes, time_ns}'`,
		PreRunE: o.take,
		RunE:    func(c *cobra.Command, _ []string) error { return showPeaks(c, &o) },
	}
	o.source.RegisterWatch(c)
	o.source.Owners = true
	o.span.Register(c, "end")
	flags.By(c, &o.by, "stack")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(alloc.Regions))
	flags.Limit(c, &o.n, listedHolders)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules, flags.UTC)
	return c
}

func showPeaks(c *cobra.Command, o *viewOptions) error {
	if o.format.JSON && !c.Flags().Changed("limit") {
		o.n = 0
	}
	filter, rules, err := o.check(alloc.Regions)
	if err != nil {
		return err
	}
	span, err := source.ParseSpan(o.source.File, o.span, moment.End)
	if err != nil {
		return err
	}
	span.From.Peaks, span.To.Peaks = filter.SelectsPeak, filter.SelectsPeak
	state, w, how, err := o.readPeaks(span)
	if err != nil {
		return err
	}
	w.Notes = append(alloc.Overlaps(state.Snapshot(), false, filter.PIDs), w.Notes...)
	how.By, how.Lines, how.Limit, how.Filter, how.Rules = o.by, o.lines, o.n, filter, rules
	how.Notes, how.Clock, how.UTC = w.Notes, o.source.Clock(), o.utc
	if o.source.File != "" && span.IsWhole() {
		if how.Advice, err = adviceUnasked(&source.Recording{Path: o.source.File, PIDs: o.source.PIDs, Quiet: true}); err != nil {
			return err
		}
	}
	p := peak.New(state, how)
	if err := checkSelected(&filter, p.Snap, how.Of); err != nil {
		return cmp.Or(o.source.Missing(), err)
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), p.Snap), "peaks"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(*p.Losses, "the peaks may be wrong"))
}

// readPeaks reads the events of a span. It returns a state that has its peaks, and their origin.
func (o *viewOptions) readPeaks(span moment.Span) (s *aggregate.State, w *source.Summary, how peak.Options, err error) {
	if span.IsWhole() {
		s = aggregate.New()
		o.source.StateOnly = len(o.source.PIDs) == 0 // the state of one process lacks the chips' peaks
		if w, err = o.source.Watch(s.Apply); err != nil {
			return nil, nil, how, err
		}
		if w.File != nil && w.File.Older() != "" {
			how.About = []string{w.File.Older()}
		}
		how.Of, how.Place, how.EndNs = w.Of, source.In(w.Of), w.UntilNs()
		return s, w, how, nil
	}
	r := o.source.Recording()
	list, err := r.Intervals(span)
	if err != nil {
		return nil, nil, how, err
	}
	end, err := r.Play(span, list, func(now *aggregate.State, at memory.Point) {
		if now.Advance(at.TimeNs); s == nil {
			now.BeginPeaks()
		}
		now.CountPeaks(true)
	}, func(now *source.State, _ moment.Regions) {
		if s = now.State; span.Within != "" {
			s.CountPeaks(false)
		}
	})
	if err != nil {
		return nil, nil, how, err
	}
	losses := end.Totals().Losses(false, o.source.PIDs)
	how.Span, how.Losses = source.SpanOf(&span, list), &losses
	how.Of, how.EndNs = end.File.Name+", "+span.String(), how.Span.ToNs
	how.Place = source.In(how.Of)
	if begin, err := r.Begin(); err == nil && how.Span.FromNs > begin.TimeNs {
		how.About = []string{fmt.Sprintf("Times count from the beginning of the span, %s after the first event.", page.Moment(how.Span.FromNs-begin.TimeNs))}
	}
	return s, &end.Summary, how, nil
}

// checkSelected returns an error if a selected chip or process was not seen.
func checkSelected(filter *alloc.Filter, snap *memory.Snapshot, of string) error {
	return cmp.Or(source.CheckChips(filter.Devices, snap, source.In(of)), source.CheckPIDs(filter.PIDs, snap, source.In(of)))
}
