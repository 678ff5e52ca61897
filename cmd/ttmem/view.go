package main

import (
	"github.com/spf13/cobra"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// viewOptions are the flags of views: the source, the selection, and the format.
type viewOptions struct {
	source source.Options
	at     string
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

// span returns the range between two moments, in ns after the first event; until is 0 if there is
// no end. peaks are the selected regions.
func (o *viewOptions) span(from, to string, peaks source.Regions) (since, until uint64, err error) {
	s, err := source.ParseSpan(o.source.File, from, to, source.After)
	s.From.Peaks, s.To.Peaks = peaks, peaks
	switch {
	case err != nil:
		return 0, 0, err
	case s.From.Kind != source.Begin && s.From.Kind != source.After, !s.To.AtEnd() && s.To.Kind != source.After:
		return (&source.Recording{Path: o.source.File}).Times(s)
	}
	if since, until = uint64(s.From.Time), uint64(s.To.Time); !s.To.AtEnd() && until <= since {
		err = s.Empty()
	}
	return since, until, err
}
