package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/memmap"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// mapOptions say which address spaces are drawn, and how.
type mapOptions struct {
	source  source.Options
	at      string
	devices []int
	regions []string
	rules   string
	n       int
	json    bool
}

func newMap() *cobra.Command {
	var o mapOptions
	c := &cobra.Command{
		Use:   "map [FILE]",
		Short: "Draw the address space of each region: buffers and holes",
		Long: `Draws the addresses of each region: buffers, the holes between them and, in L1, the circular
and dataflow buffers of programs. One bank stands for all, as all are used alike.

FILE is a recording, at its end or --at another moment (docs/diff.md). Without it the state
comes from the host's service (ttmem serve) or, for root, from the memory of the processes.
docs/map.md explains the picture.`,
		Example: `  ttmem map model.ttmem --at peak
  ttmem map model.ttmem --at trained --region L1
  ttmem map                              what ttmem serve sees
  sudo ttmem map -p 4242 --region DRAM -n 0
  ttmem map model.ttmem --json | jq '.regions[] | {region, fragmentation}'`,
		RunE: func(c *cobra.Command, args []string) error { return drawMap(c, &o, args) },
	}
	o.source.Register(c)
	flags.At(c, &o.at, "end")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(memmap.Regions))
	flags.Limit(c, &o.n, 12)
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

// check checks the flags before anything is read.
func (o *mapOptions) check(c *cobra.Command, args []string) (at source.Moment, regions []event.Region, rules *name.Rules, err error) {
	if err := o.source.Check(c, args); err != nil {
		return at, nil, nil, err
	}
	if at, err = source.ParseMoment("at", o.at); err != nil {
		return at, nil, nil, err
	}
	at.Last = true
	if regions, err = alloc.ParseRegions(o.regions, memmap.Regions); err != nil {
		return at, nil, nil, fmt.Errorf("%w; circular buffers are in the map of L1", err)
	}
	switch {
	case o.n < 0:
		return at, nil, nil, fmt.Errorf("-n %d: must not be negative; 0 lists all", o.n)
	case at.Kind == source.Unfreed:
		return at, nil, nil, source.ErrUnfreed
	case o.source.File == "" && !at.AtEnd():
		return at, nil, nil, errors.New("--at is a moment of a recording: leave it out to draw what is live now")
	}
	rules, err = flags.ReadRules(o.rules)
	return at, regions, rules, err
}

func drawMap(c *cobra.Command, o *mapOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	at, regions, rules, err := o.check(c, args)
	if err != nil {
		return err
	}
	p := &memmap.Page{Names: &alloc.Namer{Rules: rules}, Regions: regions, Chips: o.devices, Limit: o.n}
	failed, err := o.read(p, at)
	if err != nil {
		return err
	}
	if err := source.CheckChips(o.devices, p.Snapshot, p.Of); err != nil {
		return err
	}
	if err := printView(p, o.json, "map"); err != nil {
		return err
	}
	for _, note := range p.Notes {
		term.Warn(note)
	}
	if n := p.Snapshot.LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("the map may lack buffers, or have too many: %s lost", page.Count(n, "event")))
	}
	if failed {
		return term.ExitStatus(1)
	}
	return nil
}

// read adds the regions to a page; failed is true if not everything could be read.
func (o *mapOptions) read(m *memmap.Page, at source.Moment) (failed bool, err error) {
	if o.source.File == "" {
		p, err := o.source.Now()
		if err != nil {
			return false, err
		}
		m.Of, m.Notes, m.Others, m.Snapshot = p.Of, p.Notes, p.Others, p.Snapshot()
		if o.json {
			m.Notes = page.WithOthers(m.Notes, m.Others)
		}
		m.Add(p.State, p.NowNs, source.EveryRegion)
		return p.Failed, nil
	}
	recording := source.Recording{Path: o.source.File, PIDs: o.source.PIDs}
	err = recording.StateAt(at, func(s *aggregate.State, regions source.Regions) { m.Add(s, s.Now(), regions) })
	if err != nil {
		return false, cmp.Or(o.source.Missing(), err)
	}
	end, summary, err := recording.End()
	if err != nil {
		return false, err
	}
	snap := end.Snapshot()
	if source.CheckPIDs(o.source.PIDs, snap, "") != nil {
		if err := o.source.Missing(); err != nil {
			return false, err
		}
	}
	m.Of, m.Ended, m.Notes, m.Snapshot = at.Of(o.source.File), at.AtEnd(), summary.Notes, snap
	return summary.Failed, nil
}
