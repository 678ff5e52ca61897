package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/memmap"
	"ttmem/cmd/ttmem/internal/source"
)

func newMap() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "map [FILE]",
		Short: "Draw the address space of each region: buffers and holes",
		Long: `Draws the addresses of each region: buffers, the holes between them and, in L1, the circular
and dataflow buffers of programs. One bank represents all, because all have the same layout.

FILE is a recording, at its end or --at another moment (docs/diff.md). If nothing is live at the
end, it draws the story: the last failed allocation, else the largest leak, else the peak of each
region. Without FILE, the state comes from the host's service (ttmem serve) or, for root, from the
memory of the processes.
docs/map.md explains the picture.`,
		Example: `  ttmem map model.ttmem --at peak
  ttmem map model.ttmem --at trained --region L1
  ttmem map                              live, from ttmem serve
  ttmem map -p 4242 --region DRAM -n 0
  ttmem map model.ttmem --json | jq '.regions[] | {region, fragmentation}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return drawMap(&o) },
	}
	o.source.Register(c)
	flags.At(c, &o.at, "")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(memmap.Regions))
	flags.Limit(c, &o.n, 12)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules, flags.UTC)
	return c
}

func drawMap(o *viewOptions) error {
	p, w, err := o.readMap(cmp.Or(o.at, "end"))
	if err != nil {
		return err
	}
	if err := source.CheckChips(o.devices, p.Snapshot, p.Of); err != nil {
		return err
	}
	if o.at == "" && o.source.File != "" && len(p.Maps) == 0 {
		if story, summary, err := o.readMap("story"); err == nil { // a pipe cannot be read again
			p, w = story, summary
		}
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), p.Snapshot), "map"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses, "the map may lack buffers, or have too many"))
}

// readMap checks the other flags, and reads the regions at a moment.
func (o *viewOptions) readMap(text string) (*memmap.Page, *source.Summary, error) {
	at, err := source.ParseAt(o.source.File, text)
	if err != nil {
		return nil, nil, err
	}
	if _, err := alloc.ParseRegions(o.regions, memmap.Regions); err != nil {
		return nil, nil, fmt.Errorf("%w; circular buffers are in the map of L1", err)
	}
	filter, rules, err := o.check(memmap.Regions)
	if err != nil {
		return nil, nil, err
	}
	m := &memmap.Page{Names: &alloc.Namer{Rules: rules}, Regions: filter.Regions, Chips: o.devices, Limit: o.n, UTC: o.utc}
	var overlaps []string
	end, err := o.source.Present(o.source.PIDs).StateAt(at, func(s *source.State, regions moment.Regions) {
		m.AtPeak = s.At == moment.Peak
		overlaps = append(overlaps, alloc.Overlaps(m.Add(s.State, s.NowNs, regions), true, o.source.PIDs)...)
	})
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(overlaps)
	end.Notes = append(slices.Compact(overlaps), end.Notes...)
	if o.format.JSON {
		end.Notes = page.WithOthers(end.Notes, end.Others)
	}
	m.Of, m.Notes, m.Others, m.Snapshot, m.Clock = end.Of, end.Notes, end.Others, end.Snapshot(), o.source.Clock()
	m.Losses = m.Snapshot.Losses(at.AtEnd(), o.source.PIDs)
	if at.AtEnd() {
		m.Ended = o.source.File
	}
	if source.CheckPIDs(o.source.PIDs, m.Snapshot, "") != nil {
		err = o.source.Missing()
	}
	return m, &end.Summary, err
}
