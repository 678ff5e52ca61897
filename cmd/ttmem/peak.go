package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/peak"
	"ttmem/cmd/ttmem/source"
)

// listedHolders is the number of lines for a peak without -n.
const listedHolders = 10

func newPeak() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "peak [FILE | -- COMMAND]",
		Short: "Show when each region was fullest, and what it held",
		Long: `Shows when each region of each chip was fullest, what it held then, and how it filled over
time.

FILE is a recording. Without it COMMAND is run and traced to its end, or running processes are
watched until Ctrl-C: through the host's service (ttmem serve), or as root. docs/peak.md explains
the page.`,
		Example: `  ttmem peak model.ttmem
  sudo ttmem peak -- python model.py
  sudo ttmem peak -p 4242 --duration 1m
  ttmem peak model.ttmem --region L1 --by op -n 20
  ttmem peak model.ttmem --json | jq '.peaks[] | {region, bytes, time_ns}'`,
		PreRunE: o.take,
		RunE:    func(c *cobra.Command, _ []string) error { return showPeaks(c, &o) },
	}
	o.source.RegisterWatch(c)
	o.source.Owners = true
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
	state := aggregate.New()
	o.source.StateOnly = len(o.source.PIDs) == 0 // the state of one process lacks the chips' peaks
	w, err := o.source.Watch(state.Apply)
	if err != nil {
		return err
	}
	var about []string
	if w.File != nil && w.File.Older() != "" {
		about = append(about, w.File.Older())
	}
	p := peak.New(state, peak.Options{
		Of: w.Of, Place: source.In(w.Of), By: o.by, Lines: o.lines, Limit: o.n, Filter: filter, Rules: rules, EndNs: w.UntilNs(),
		Notes: w.Notes, About: about, Clock: o.source.Clock(), UTC: o.utc,
	})
	if err := checkSelected(&filter, p.Snap, w.Of); err != nil {
		return cmp.Or(o.source.Missing(), err)
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), p.Snap), "peaks"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Snap.Losses(false, filter.PIDs), "the peaks may be wrong"))
}

// checkSelected returns an error if a selected chip or process was not seen.
func checkSelected(filter *alloc.Filter, snap *memory.Snapshot, of string) error {
	return cmp.Or(source.CheckChips(filter.Devices, snap, source.In(of)), source.CheckPIDs(filter.PIDs, snap, source.In(of)))
}
