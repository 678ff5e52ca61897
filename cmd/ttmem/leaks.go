package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// leaksOptions say what of what is left is a leak, and how it is shown.
type leaksOptions struct {
	dumpOptions
	from, to string
	every    time.Duration
	suppress string
	failOver byteSize
	// known is what --suppress names
	known *aggregate.Suppressions
	// asked is what --pid and --device name
	asked asked
	// watchedNs is how long what runs was watched, in ns; 0 for what was seen to its end
	watchedNs uint64
}

// The names of --from and --to that are no marks.
const (
	atBegin = "begin"
	atEnd   = "end"
)

// leaked is the exit status where --fail-over finds too much.
const leaked = 3

// listedLeaks is how many leaks are listed where nobody says.
const listedLeaks = 20

func newLeaks() *cobra.Command {
	var o leaksOptions
	c := &cobra.Command{
		Use:   "leaks [FILE | -- COMMAND]",
		Short: "Show what was allocated again and again and never given back",
		Long: `Shows by call stack what was allocated after one mark and is still there at another,
or, without marks, what was allocated again and again and never freed, to the end: the
end of the program, where what only the device's closing freed counts as never freed.

Marks come from ttmem mark NAME, from a key in ttmem top, and from --mark-at while
tracing; --every places one each so many seconds, also when a recording is read. --from
is the first mark where it is not given, and the first of its name; --to is the last one.
NAME#2 is the second of that name, and "begin" and "end" stand for the beginning and the
end. Marks of steps, as ttmem steps and pytest --ttmem place them, count only where --from
or --to names one.

Marks that are older than the watch count only where --from names one: what was freed
since is not told, so that what is still there is listed as left, and only what grows while
it is watched leaks. The service's recording (ttmem serve --record FILE) knows all.

Between two marks everything leaked that is left; where others are between them, what
grows from mark to mark to the last. What does not grow, such as a cache that has filled,
is listed as left, and --fail-over does not count it.

What tt-metal itself keeps, such as kernel binaries and what belongs to programs in the
program cache, is no leak and listed below. What loads weights looks like a leak as long
as nothing else runs; it is listed apart, too.

FILE is a recording, or a file of events. Without it COMMAND is run and traced to its
end, or what runs already is watched until Ctrl-C: by the service of this host (ttmem
serve) or, where none runs, by root.

--suppress names a file of regular expressions, one a line: what has a frame that one
matches, as FILE:LINE FUNCTION, is not told of.`,
		Example: `  ttmem leaks model.ttmem
  sudo ttmem leaks -- python model.py
  sudo ttmem leaks -p 4242 --duration 1m
  ttmem leaks model.ttmem --from warm --to done
  ttmem leaks model.ttmem --every 10s --by component --rules model.rules
  sudo ttmem leaks --mark-at ttnn::softmax -- python model.py
  sudo ttmem leaks --fail-over 1MiB --suppress known.txt -- python test.py  # status 3: too much
  ttmem leaks model.ttmem --json | jq '.leaks[] | {bytes, count, name}'`,
		RunE: func(c *cobra.Command, args []string) error { return leaks(c, &o, args) },
	}
	o.source.registerWatch(c)
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "what was allocated after the first mark `NAME`; NAME#2 is the second")
	f.StringVar(&o.to, "to", "", "what is still there at the last mark `NAME`; NAME#2 is the second")
	f.DurationVar(&o.every, "every", 0, "place a mark each `TIME`, such as 10s, from the first allocation on")
	o.source.stacks.registerMarkAt(c)
	f.StringVar(&o.by, "by", "stack", "count by `WHAT`: "+strings.Join(dumpGroupings(), ", "))
	f.IntSliceVar(&o.devices, "device", nil, "only the chip `N` (may be repeated)")
	f.StringSliceVar(&o.regions, "region", nil, "only the `REGION`: "+strings.Join(leakRegions(), ", ")+" (may be repeated)")
	f.StringVar(&o.rules, "rules", "", "name components of the model by the rules in `FILE`")
	f.StringVar(&o.suppress, "suppress", "", "leave out the stacks that a line of `FILE` matches")
	f.Var(&o.failOver, "fail-over", "exit with status 3 where more than `SIZE` leaked, such as 1MiB; what is left and does not grow is not counted")
	f.IntVarP(&o.n, "limit", "n", listedLeaks, "list at most `N` leaks (0: all)")
	f.BoolVar(&o.json, "json", false, "print the same as one line of JSON, with all leaks and their whole stacks")
	fixed := func(flag string, values []string) {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	fixed("by", dumpGroupings())
	fixed("region", leakRegions())
	completeMoments(c, "from", "begin")
	completeMoments(c, "to", "end")
	for _, flag := range []string{"every", "device", "limit", "fail-over"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = c.MarkFlagFilename("rules")
	_ = c.MarkFlagFilename("suppress")
	return c
}

// leakRegions are the regions that buffers are in.
func leakRegions() (names []string) {
	for _, region := range shownRegions {
		if region != event.CB {
			names = append(names, region.String())
		}
	}
	return names
}

// checkMarks finds what is wrong with what is said of marks, and makes of it what
// package aggregate is told.
func (o *leaksOptions) checkMarks(c *cobra.Command) (g aggregate.GrowthOptions, err error) {
	f := c.Flags()
	ends := func(flag, value string) error {
		if f.Changed(flag) && value == "" {
			return fmt.Errorf("--%s: name a mark", flag)
		}
		return nil
	}
	if err := errors.Join(ends("from", o.from), ends("to", o.to)); err != nil {
		return g, err
	}
	switch {
	case f.Changed("every") && o.every < time.Millisecond:
		return g, fmt.Errorf("--every %v: at least 1ms", o.every)
	case o.every > 0 && (o.from != "" || o.to != ""):
		return g, errors.New("--every and --from or --to: marks of one kind")
	case o.every > 0 && len(o.source.stacks.markAt) > 0:
		return g, errors.New("--every and --mark-at: marks of one kind")
	}
	g = aggregate.GrowthOptions{EveryNs: uint64(o.every)}
	if g.Begin = o.from == atBegin; !g.Begin {
		g.From, g.FromNth = markNth(o.from)
	}
	if g.End = o.to == atEnd; !g.End {
		g.To, g.ToNth = markNth(o.to)
	}
	return g, nil
}

// markNth is the name of a mark and which of that name, 0 where that is not said: as
// other commands take it, with mark: before names that mean something else.
func markNth(text string) (name string, nth int) {
	if text == "" {
		return "", 0
	}
	m, _ := parseMoment("", "mark:"+strings.TrimPrefix(text, "mark:")) // a mark has no wrong name
	return m.mark, m.nth
}

// check finds what is wrong with the flags before anything is read.
func (o *leaksOptions) check(c *cobra.Command) (dumpFilter, *aggregate.Rules, error) {
	if o.by == "" {
		return dumpFilter{}, nil, fmt.Errorf("--by: there are %s", strings.Join(dumpGroupings(), ", "))
	}
	filter, rules, err := o.dumpOptions.check()
	if err != nil {
		return filter, nil, err
	}
	for _, region := range filter.regions {
		if region == event.CB {
			return filter, nil, fmt.Errorf("--region CB: programs give back their circular buffers; there are %s", strings.Join(leakRegions(), ", "))
		}
	}
	if o.suppress != "" {
		f, err := os.Open(o.suppress)
		if err != nil {
			return filter, nil, fmt.Errorf("--suppress %s: %w", o.suppress, pathless(err))
		}
		defer f.Close()
		if o.known, err = aggregate.ReadSuppressions(o.suppress, f); err != nil {
			return filter, nil, fmt.Errorf("--suppress %w", err)
		}
	}
	return filter, rules, nil
}

func leaks(c *cobra.Command, o *leaksOptions, args []string) error {
	if err := o.source.checkWatch(c, args); err != nil {
		return err
	}
	if err := o.source.checkMarkAt(); err != nil {
		return err
	}
	marks, err := o.checkMarks(c)
	if err != nil {
		return err
	}
	filter, rules, err := o.check(c)
	if err != nil {
		return err
	}
	o.asked = newAsked(filter.pids, filter.devices)
	w, growth, lost, err := o.follow(marks)
	if err != nil {
		return err
	}
	if err := o.asked.check(w.in()); err != nil {
		return errors.Join(cmp.Or(o.source.missing(), err), w.status())
	}
	report, err := growth.Report()
	if err != nil {
		return errors.Join(o.markError(w, err), w.status())
	}
	page := newLeakPage(report, w, o, filter, rules)
	if err := page.write(os.Stdout, listLayoutFor(os.Stdout)); err != nil {
		return fmt.Errorf("writing the leaks: %w", pathless(err))
	}
	for _, note := range append(page.notes(), w.notes...) {
		warn(note)
	}
	if lost > 0 {
		warn(fmt.Sprintf("there may be fewer leaks, or others: %s lost", formatCount(lost, "event")))
	}
	if err := w.status(); err != nil {
		return err
	}
	if total := page.leaked(); c.Flags().Changed("fail-over") && total.Bytes > uint64(o.failOver) {
		warn(fmt.Sprintf("%s leaked, more than --fail-over %s", formatBytes(total.Bytes), formatBytes(uint64(o.failOver))))
		return exitStatus(leaked)
	}
	return nil
}

// follow follows what grows until there are no more events, and counts those that were
// lost.
func (o *leaksOptions) follow(marks aggregate.GrowthOptions) (w *watched, growth *aggregate.Growth, lost uint64, err error) {
	if o.source.file != "" {
		w, f, err := watchLeaks(o.source.file, o, marks)
		if err != nil {
			return nil, nil, 0, err
		}
		return w, f.growth, f.lost, nil
	}
	growth = aggregate.NewGrowth(marks)
	began := uint64(0)
	begin := func() {
		if began == 0 {
			began = monotonicNow()
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.ctx = ctx
	w, err = o.source.watch(func(e *event.Event) {
		begin()
		if e.Kind == event.Lost {
			lost += e.Count
		}
		o.asked.meet(e)
		growth.Apply(e)
		if growth.Over() || e.Kind == event.Total && e.PID == 0 && o.asked.gone() {
			stop() // nothing that comes helps
		}
	}, begin)
	if w != nil && w.live {
		begin()
		o.watchedNs = monotonicNow() - began
	}
	return w, growth, lost, err
}

// markError says where to look for a mark that lies before what is known.
func (o *leaksOptions) markError(w *watched, err error) error {
	var earlier *aggregate.EarlierMarkError
	switch {
	case !errors.As(err, &earlier):
		return err
	case o.source.file != "":
		return fmt.Errorf("--to %s: the mark lies before %s begins, and what there was then is not known here", earlier.Mark, w.of)
	}
	from := cmp.Or(o.from, atBegin)
	return fmt.Errorf("--to %s: the mark is from before you asked, and what was freed since is not told: "+
		"ttmem leaks FILE --from %s --to %s of the service's recording (ttmem serve --record FILE)", earlier.Mark, from, o.to)
}

// write writes the page as the options ask for.
func (p *leakPage) write(w io.Writer, layout listLayout) error {
	out := bufio.NewWriter(w)
	if p.o.json {
		if err := p.writeJSON(out); err != nil {
			return err
		}
		return out.Flush()
	}
	p.writeText(out, layout)
	return out.Flush()
}
