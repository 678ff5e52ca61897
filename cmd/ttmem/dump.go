package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/dump"
	"ttmem/cmd/ttmem/internal/source"
)

func newDump() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "dump [FILE]",
		Short: "List live buffers, with the lines that allocated them",
		Long: `Lists live buffers, and the circular and dataflow buffers of programs, largest first, with the
lines that allocated them.

FILE is a recording, at its end or --at another moment (docs/diff.md). For a span (docs/phases.md),
it lists buffers that were allocated in it and are live at its end. Without FILE, the state comes from
the host's service (ttmem serve) or, for root, from the processes. docs/dump.md explains the columns.`,
		Example: `  ttmem dump                             live, from ttmem serve
  ttmem dump -p 4242
  ttmem dump model.ttmem --at peak --by op
  ttmem dump model.ttmem --within forward#3 --region L1
  ttmem dump --by component --rules model.rules
  ttmem dump --grep 'attention\.py:\d+' -n 20
  ttmem dump --json | jq '.buffers[] | select(.size_bytes > 1e6) | .name'`,
		PreRunE: o.take,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("at") && o.span != (flags.Span{}) {
				return errors.New("--at selects a moment, and --from, --to and --within a span: give one of them")
			}
			return runDump(&o)
		},
	}
	o.source.Register(c)
	o.source.Owners = true
	flags.At(c, &o.at, "end")
	o.span.Register(c, "")
	flags.By(c, &o.by, "")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(alloc.Regions))
	flags.Grep(c, &o.grep)
	flags.Limit(c, &o.n, 0)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules, flags.UTC)
	return c
}

func runDump(o *viewOptions) error {
	filter, rules, err := o.check(alloc.Regions)
	if err != nil {
		return err
	}
	l, err := o.list(filter, rules)
	if err != nil {
		return err
	}
	if (o.utc || l.Span != page.Span{} || o.at != "end") && !o.format.JSON && l.All > 0 {
		layout := o.format.LayoutFor(os.Stdout)
		for _, text := range o.moments(l) {
			for _, line := range layout.Lines(text, 0) {
				fmt.Println(layout.Paint(page.Dim, line))
			}
		}
	}
	if o.format.JSON {
		l.Notes = page.WithOthers(l.Notes, l.Others)
	}
	if err := output.Print(o.view(l), o.format, page.NewSupplement(o.source.Clock(), l.Snap), "list"); err != nil {
		return err
	}
	return (&source.Summary{Summary: moment.Summary{Notes: l.Notes, Failed: l.Failed}}).Finish(page.Doubts(l.Losses, "the list may lack buffers, or have too many"))
}

// moments says at which moment, or at which of several, the memory is listed.
func (o *viewOptions) moments(l *dump.List) []string {
	of := page.Clean(l.Of)
	if l.Span != (page.Span{}) {
		of = "allocated " + of + ", and live at the end of that"
	}
	switch clock := o.source.Clock(); {
	case !o.utc:
		return []string{of}
	case len(l.Moments) == 0:
		return []string{of + ", at " + clock.UTC(l.NowNs) + " UTC"}
	default:
		return append([]string{of}, page.Each(l.Moments, func(m dump.Moment) string {
			return fmt.Sprintf("%s: %s at %s UTC", page.EachChip(m.Devices), strings.Join(m.Regions, ", "), clock.UTC(m.TimeNs))
		})...)
	}
}

// view returns the list, or its groups, as selected by the flags.
func (o *viewOptions) view(l *dump.List) output.View {
	l.Sort()
	if o.by == "" {
		l.Cut(o.n)
		return l
	}
	return l.Group(o.by, o.n)
}

// newListing lists the live memory.
func newListing(p *source.State, filter alloc.Filter, rules *name.Rules) (*dump.List, error) {
	snap := p.Totals()
	if err := checkLive(snap, &filter, p.Of); err != nil {
		return nil, err
	}
	l := dump.New(p.State, p.NowNs, alloc.Namer{Snap: snap, Rules: rules, Filter: filter})
	l.Of = p.Of
	return l, nil
}

// checkLive returns an error if a selected chip or process does not exist.
func checkLive(snap *memory.Snapshot, filter *alloc.Filter, of string) error {
	var pids []int
	for i := range snap.Processes {
		if snap.Processes[i].Exit == nil {
			pids = append(pids, snap.Processes[i].PID)
		}
	}
	if err := source.CheckChips(filter.Devices, snap, of); err != nil {
		return err
	}
	if source.IsOwn(of) {
		if err := source.CheckPIDs(filter.PIDs, snap, of); err != nil {
			return err
		}
		of = "on this host"
	}
	for _, pid := range filter.PIDs {
		ended := func(p memory.Process) bool { return p.PID == pid && p.Exit != nil }
		switch {
		case !slices.Contains(pids, pid) && slices.ContainsFunc(snap.Processes, ended):
			return fmt.Errorf("-p %d: the process has ended, and has nothing live %s; `ttmem report … -p %d` shows its memory", pid, of, pid)
		case len(pids) == 0:
			return fmt.Errorf("-p %d: no process is running %s", pid, of)
		case !slices.Contains(pids, pid):
			return fmt.Errorf("-p %d: not running %s; available: PID %s", pid, of, strings.Trim(fmt.Sprint(pids), "[]"))
		}
	}
	return nil
}

// states returns the moment to list and the states of that or, with a span, those at its end, and the times
// of the span.
func (o *viewOptions) states() (from source.Source, at moment.Moment, span moment.Span, born moment.Intervals, err error) {
	span, err = source.ParseSpan(o.source.File, o.span, moment.End)
	switch {
	case err != nil:
	case o.span == flags.Span{}:
		at, err = source.ParseAt(o.source.File, o.at)
		from = o.source.Present(nil)
	default:
		r := o.source.Recording()
		if born, err = r.Intervals(span); err == nil {
			at, from = span.To, r.EndOf(span, born)
		}
	}
	return from, at, span, born, err
}

// list lists the memory that is live at a moment, or what of it was allocated in a span. Each region of each
// chip has its peak at a different time.
func (o *viewOptions) list(filter alloc.Filter, rules *name.Rules) (*dump.List, error) {
	from, at, span, born, err := o.states()
	if err != nil {
		return nil, err
	}
	var l *dump.List
	var failed error
	var moments []dump.Moment
	var overlaps []string
	list := func(s *source.State, regions moment.Regions) {
		filters := []alloc.Filter{filter}
		if s.At == moment.Peak {
			filters = splitFilter(&filter, s.State, regions)
		}
		for _, some := range filters {
			if failed != nil {
				return
			}
			one, err := newListing(s, some, rules)
			if err == nil {
				if born != nil {
					one.OnlyAllocated(born.Times())
				}
				overlaps = append(overlaps, alloc.Overlaps(one.Snap, true, filter.PIDs)...)
			}
			if err == nil && s.At == moment.Peak {
				one.OnlyRunning(s.State)
				moments = append(moments, momentOf(&some, one.Snap))
			}
			if err != nil || l == nil {
				l, failed = one, err
				continue
			}
			l.Append(one)
		}
	}
	end, err := from.StateAt(at, list)
	if err == nil && failed == nil && l == nil { // nothing was ever allocated in these regions
		l, failed = newListing(end, filter, rules)
	}
	switch {
	case err != nil:
		return nil, err
	case failed != nil && at.AtEnd() && o.source.File != "" && len(filter.PIDs) > 0:
		return nil, cmp.Or(o.source.Missing(), fmt.Errorf("%w; --at peak lists what it had", failed))
	case failed != nil:
		return nil, cmp.Or(o.source.Missing(), failed)
	}
	l.Others, l.Failed = end.Others, end.Failed
	// A loss is known only after it happened: an earlier moment may lack events, too.
	l.Losses = end.Totals().Losses(at.AtEnd(), filter.PIDs)
	l.Filter, l.Moments = filter, moments
	slices.Sort(overlaps)
	l.Notes = append(slices.Compact(overlaps), end.Notes...)
	switch {
	case born != nil:
		l.Span, l.Of = source.SpanOf(&span, born), span.String()+" "+source.In(end.File.Name)
	case at.AtEnd():
		l.Ended = o.source.File
	}
	return l, nil
}

// splitFilter returns the filter with only some regions: several filters if the chips have
// different regions.
func splitFilter(f *alloc.Filter, s *aggregate.State, some moment.Regions) (list []alloc.Filter) {
	all := s.Totals().DeviceIDs()
	if all == nil {
		return []alloc.Filter{*f}
	}
	for _, region := range alloc.Regions {
		if len(f.Regions) > 0 && !slices.Contains(f.Regions, region) {
			continue
		}
		devices := slices.DeleteFunc(slices.Clone(all), func(id int) bool {
			return !some(id, region) || len(f.Devices) > 0 && !slices.Contains(f.Devices, id)
		})
		switch {
		case len(devices) == 0:
			continue
		case len(devices) == len(all):
			devices = f.Devices // including memory on no known chip
		}
		same := slices.IndexFunc(list, func(other alloc.Filter) bool { return slices.Equal(other.Devices, devices) })
		if same < 0 {
			same = len(list)
			one := *f
			one.Devices, one.Regions = devices, nil
			list = append(list, one)
		}
		list[same].Regions = append(list[same].Regions, region)
	}
	return list
}

// momentOf returns the time of the memory that a filter selects.
func momentOf(f *alloc.Filter, snap *memory.Snapshot) dump.Moment {
	m := dump.Moment{Devices: f.Devices, Regions: alloc.RegionNames(f.Regions), TimeNs: snap.TimeNs}
	if f.Devices == nil {
		m.Devices = snap.DeviceIDs()
	}
	return m
}
