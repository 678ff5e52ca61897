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
