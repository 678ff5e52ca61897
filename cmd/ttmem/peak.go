package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// peakOptions say which peaks are shown, and how. What they have in common with a
// dump's is in its options.
type peakOptions struct {
	dumpOptions
	timeline string
}

// listedHolders is how many lines a peak's list has if nothing else is asked for.
const listedHolders = 10

func newPeak() *cobra.Command {
	var o peakOptions
	c := &cobra.Command{
		Use:   "peak [FILE | -- COMMAND]",
		Short: "Show when each region was fullest, and what it held",
		Long: `Shows when each region of each chip was fullest, what it held then, and how it filled over
time.

FILE is a recording. Without it COMMAND is run and traced to its end, or what runs already is
watched until Ctrl-C: through the host's service (ttmem serve), or as root.
docs/peak.md explains the page.`,
		Example: `  ttmem peak model.ttmem
  sudo ttmem peak -- python model.py
  sudo ttmem peak -p 4242 --duration 1m
  ttmem peak model.ttmem --region L1 --by op -n 20
  ttmem peak model.ttmem --timeline memory.svg
  ttmem peak model.ttmem --json | jq '.peaks[] | {region, bytes, time_ns}'`,
		RunE: func(c *cobra.Command, args []string) error { return peak(c, &o, args) },
	}
	o.source.registerWatch(c)
	flags.By(c, &o.by, "stack")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, dumpRegions())
	flags.Limit(c, &o.n, listedHolders)
	c.Flags().StringVar(&o.timeline, "timeline", "", "draw the timelines into `FILE`, as SVG (-: standard output)")
	_ = c.MarkFlagFilename("timeline", "svg")
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

// check finds what is wrong with the flags before anything is read.
func (o *peakOptions) check(c *cobra.Command) (alloc.Filter, *name.Rules, error) {
	timeline := c.Flags().Changed("timeline")
	switch {
	case timeline && o.timeline == "":
		return alloc.Filter{}, nil, errors.New("--timeline: name a file")
	case o.timeline == "-" && o.json:
		return alloc.Filter{}, nil, errors.New("--json and --timeline cannot both be standard output")
	case o.json && c.Flags().Changed("limit"):
		return alloc.Filter{}, nil, errors.New("-n is of the text: --json has everything")
	}
	if err := flags.CheckBy(o.by); err != nil {
		return alloc.Filter{}, nil, err
	}
	return o.dumpOptions.check()
}

func peak(c *cobra.Command, o *peakOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	if err := o.source.checkWatch(c, args); err != nil {
		return err
	}
	filter, rules, err := o.check(c)
	if err != nil {
		return err
	}
	var svg *output.File
	if o.timeline != "" && o.timeline != "-" {
		if svg, err = output.Create("--timeline", o.timeline); err != nil {
			return err
		}
		defer svg.Discard()
	}
	state := aggregate.New()
	w, err := o.source.watch(state.Apply, func() {})
	if err != nil {
		return err
	}
	p, err := newPeakPage(state, w, filter, rules, o.by)
	if err != nil {
		return cmp.Or(o.source.missing(), err)
	}
	if older := olderOf(o.source.file); older != "" {
		p.about = append(p.about, older)
	}
	if err := p.write(os.Stdout, o, term.LayoutFor(os.Stdout)); err != nil {
		return fmt.Errorf("writing the peaks: %w", output.Pathless(err))
	}
	if svg != nil {
		if err := svg.Finish(p.writeSVG(svg.W)); err != nil {
			return fmt.Errorf("--timeline %s: %w", o.timeline, err)
		}
		term.Warn("drew the timelines to " + o.timeline)
	}
	for _, note := range w.notes {
		term.Warn(note)
	}
	if n := p.list.Snap.LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("the peaks may be wrong: %s lost", page.Count(n, "event")))
	}
	return w.status()
}

// write writes the page as the options ask for.
func (p *peakPage) write(w io.Writer, o *peakOptions, layout page.Layout) error {
	out := bufio.NewWriter(w)
	var err error
	switch {
	case o.json:
		err = p.writeJSON(out)
	case o.timeline == "-":
		err = p.writeSVG(out)
	default:
		p.writeText(out, layout, o.n)
	}
	return errors.Join(err, out.Flush())
}

// A peakPage is what there is to show of peaks.
type peakPage struct {
	of      string
	peaks   []aggregate.RegionPeak
	list    *alloc.Namer // names and groups what the peaks are made of
	by      string
	beginNs uint64
	endNs   uint64
	// restored is true where something was before the beginning, of which there are
	// only its highest peaks.
	restored bool
	regions  []*chipsPeak
	// sites are those of all that the peaks were made of, by the ids of stacks.
	sites map[uint64]*alloc.Site
	notes []string
	// about is what is to be known of the timelines, a sentence each.
	about []string
	// chosen is true where the user named the chips to be shown.
	chosen bool
}

// A chipsPeak is the peak of a region of chips that are alike.
type chipsPeak struct {
	aggregate.RegionPeak
	ids            []int
	rows, programs []peakRow
}

func newPeakPage(state *aggregate.State, w *watched, filter alloc.Filter, rules *name.Rules, by string) (*peakPage, error) {
	begin, restored := state.Since()
	snap := state.Snapshot()
	p := &peakPage{
		of: w.of, peaks: state.RegionPeaks(), by: by, beginNs: begin, endNs: max(begin, snap.TimeNs, w.endNs), restored: restored,
		list:   &alloc.Namer{Snap: snap, Rules: rules},
		chosen: len(filter.Devices) > 0, sites: make(map[uint64]*alloc.Site), notes: w.notes,
	}
	if w.live {
		p.endNs = max(p.endNs, monotonicNow()) // nothing has happened since
	}
	if err := p.checkFilter(&filter); err != nil {
		return nil, err
	}
	if late := p.late(&filter); late != "" {
		p.about = append(p.about, late)
	}
	for _, region := range peakRegions {
		for i := range p.peaks {
			peak := &p.peaks[i]
			if peak.Region != region || !filter.SelectsPeak(peak.Device, region) {
				continue
			}
			one := &chipsPeak{RegionPeak: *peak, ids: []int{peak.Device}}
			same := slices.IndexFunc(p.regions, func(other *chipsPeak) bool { return p.alike(other, one) })
			if same >= 0 {
				p.regions[same].add(peak, p.endNs)
				continue
			}
			one.rows, one.programs = p.holderRows(peak), p.programRows(peak)
			p.regions = append(p.regions, one)
		}
	}
	return p, nil
}

// peakRegions are the regions in the order in which they are shown.
var peakRegions = slices.DeleteFunc(slices.Clone(alloc.Regions), func(r event.Region) bool { return r == event.CB })

// checkFilter makes sure that what is asked for by number was there.
func (p *peakPage) checkFilter(filter *alloc.Filter) error {
	var devices []int
	for i := range p.list.Snap.Devices {
		devices = append(devices, p.list.Snap.Devices[i].ID)
	}
	return checkAsked(filter.PIDs, filter.Devices, pidsOf(p.list.Snap), devices, placeIn(p.of))
}

// alike reports whether two chips have the same peak, made of the same.
func (p *peakPage) alike(a, b *chipsPeak) bool {
	earlier := (a.Earlier == nil) == (b.Earlier == nil) && (a.Earlier == nil || *a.Earlier == *b.Earlier)
	return a.Region == b.Region && a.TimeNs == b.TimeNs && a.Bytes == b.Bytes && a.CapacityBytes == b.CapacityBytes &&
		a.StaticBytes == b.StaticBytes && earlier &&
		slices.EqualFunc(a.Holders, b.Holders, func(a, b aggregate.PeakHolder) bool {
			return a.PID == b.PID && alloc.StackID(a.Stack) == alloc.StackID(b.Stack) && a.Layout == b.Layout && a.BeforeAttach == b.BeforeAttach &&
				a.Count == b.Count && a.Bytes == b.Bytes && len(a.Devices) == len(b.Devices)
		}) &&
		slices.EqualFunc(a.Programs, b.Programs, func(a, b aggregate.PeakProgram) bool {
			same := alloc.StackID(a.Stack) == alloc.StackID(b.Stack)
			a.Stack, b.Stack = nil, nil
			return same && a == b
		})
}

// add adds a chip that is alike. What it had at other times is in the timeline.
func (c *chipsPeak) add(peak *aggregate.RegionPeak, end uint64) {
	c.ids = append(c.ids, peak.Device)
	c.Timeline = c.Timeline.With(peak.Timeline, end)
	c.StaticTimeline = c.StaticTimeline.With(peak.StaticTimeline, end)
}
