package main

import (
	"math"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
)

// viewOptions are the flags of views: the source, the selection, and the format.
type viewOptions struct {
	source source.Options
	at     string
	span   flags.Span
	by     string
	// lines is true if the page chooses the rows of a line with several call sites.
	lines   bool
	devices []int
	regions []string
	grep    string
	rules   string
	n       int
	format  term.Format
	utc     bool
}

// take checks the arguments and the flags of all commands.
func (o *viewOptions) take(c *cobra.Command, args []string) error {
	o.format, o.utc, o.rules = flags.Format(c), flags.WantsUTC(c), flags.RulesFile(c)
	if err := o.source.Check(c, args); err != nil {
		return err
	}
	o.lines = !c.Flags().Changed("by")
	if by := c.Flags().Lookup("by"); by != nil && o.by != by.DefValue { // by may be ""
		if err := flags.CheckBy(o.by); err != nil {
			return err
		}
	}
	return nil
}

// check checks the flags before anything is read. known are the regions of the view.
func (o *viewOptions) check(known []event.Region) (filter alloc.Filter, rules *name.Rules, err error) {
	filter.Devices, filter.PIDs = o.devices, o.source.PIDs
	if filter.Regions, err = alloc.ParseRegions(o.regions, known); err != nil {
		return filter, nil, err
	}
	if err := flags.CheckLimit(o.n); err != nil {
		return filter, nil, err
	}
	if filter.Grep, err = flags.CompileGrep(o.grep); err != nil {
		return filter, nil, err
	}
	rules, err = flags.ReadRules(o.rules)
	return filter, rules, err
}

// times returns the span, in ns after the first event; nil for all events. peaks are the selected regions.
func (o *viewOptions) times(peaks moment.Regions) (memory.Intervals, error) {
	s, err := source.ParseSpan(o.source.File, o.span, moment.After)
	if err != nil || s.IsWhole() {
		return nil, err
	}
	s.From.Peaks, s.To.Peaks = peaks, peaks
	if s.Within != "" || s.From.Kind != moment.Begin && s.From.Kind != moment.After || !s.To.AtEnd() && s.To.Kind != moment.After {
		return (&source.Recording{Path: o.source.File, PIDs: o.source.PIDs}).Times(s)
	}
	one := memory.Interval{FromNs: uint64(s.From.Time), ToNs: math.MaxUint64}
	if !s.To.AtEnd() {
		one.ToNs = uint64(s.To.Time)
	}
	if one.ToNs <= one.FromNs {
		return nil, source.Flagged(s.Empty(), o.source.File)
	}
	return memory.Intervals{one}, nil
}
