package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/leaks"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// leaksOptions say which survivors are leaks, and how they are shown.
type leaksOptions struct {
	dumpOptions
	from, to string
	// interval is between marks that leaks places itself; 0: it places none
	interval  time.Duration
	suppress  string
	failAbove flags.Size
	// known are the suppressions of the file that --suppress names
	known *name.Suppressions
	// selection is what --pid and --chip select
	selection source.Selection
	// watchedNs is how long running processes were watched, in ns; 0 for what was seen to its
	// end
	watchedNs uint64
}

// The names of --from and --to that are no marks.
const (
	atBegin = "begin"
	atEnd   = "end"
)

// leaked is the exit status where --fail-above finds too much.
const leaked = 3

// listedLeaks is how many leaks are listed without -n.
const listedLeaks = 20

func newLeaks() *cobra.Command {
	var o leaksOptions
	c := &cobra.Command{
		Use:   "leaks [FILE | -- COMMAND]",
		Short: "Show call sites that allocate again and again and never free",
		Long: `Shows call sites that allocate again and again and never free or, between two marks, what was
allocated after the first and is live at the second.

FILE is a recording. Without it COMMAND is run and traced to its end, or what runs already is
watched until Ctrl-C: through the host's service (ttmem serve), or as root.
docs/leaks.md explains marks, and what counts as a leak.`,
		Example: `  ttmem leaks model.ttmem
  sudo ttmem leaks -- python model.py
  sudo ttmem leaks -p 4242 --duration 1m
  ttmem leaks model.ttmem --from warm --to done
  sudo ttmem leaks --mark-at ttnn::softmax -- python model.py
  sudo ttmem leaks --fail-above 1MiB --suppress known.txt -- python test.py
  ttmem leaks model.ttmem --json | jq '.leaks[] | {bytes, count, name}'`,
		RunE: func(c *cobra.Command, args []string) error { return runLeaks(c, &o, args) },
	}
	o.source.RegisterWatch(c)
	flags.From(c, &o.from, "begin")
	flags.To(c, &o.to, "", "end")
	flags.Interval(c, &o.interval, 0)
	o.source.Stacks.RegisterMarkAt(c)
	flags.By(c, &o.by, "stack")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, leakRegions)
	c.Flags().StringVar(&o.suppress, "suppress", "", "ignore call stacks that match a line of `FILE`")
	_ = c.MarkFlagFilename("suppress")
	flags.FailAbove(c, &o.failAbove)
	flags.Limit(c, &o.n, listedLeaks)
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

// leakRegions are the regions of buffers.
var leakRegions = alloc.RegionNames(slices.DeleteFunc(slices.Clone(alloc.Regions), func(r event.Region) bool { return r == event.CB }))

// checkMarks checks the flags of marks, and makes the range of them.
func (o *leaksOptions) checkMarks(c *cobra.Command) (r leakRange, err error) {
	f := c.Flags()
	ends := func(flag, value string) error {
		if f.Changed(flag) && value == "" {
			return fmt.Errorf("--%s: name a mark", flag)
		}
		return nil
	}
	if err := errors.Join(ends("from", o.from), ends("to", o.to)); err != nil {
		return r, err
	}
	switch {
	case f.Changed("interval") && o.interval < time.Millisecond:
		return r, fmt.Errorf("--interval %v: at least 1ms", o.interval)
	case o.interval > 0 && (o.from != "" || o.to != ""):
		return r, errors.New("--interval places marks of its own: leave out --from and --to")
	case o.interval > 0 && len(o.source.Stacks.MarkAt) > 0:
		return r, errors.New("--interval and --mark-at: give one of them")
	}
	for flag, text := range map[string]string{"from": o.from, "to": o.to} {
		if err := markOnly(flag, text); err != nil {
			return r, err
		}
	}
	r = leakRange{intervalNs: uint64(o.interval), all: o.from == "" && o.to == "" && len(o.source.Stacks.MarkAt) > 0}
	if o.from != atBegin {
		r.from, r.fromNth = markNth(o.from)
	}
	if o.to != atEnd {
		r.to, r.toNth = markNth(o.to)
	}
	return r, nil
}

// markOnly is an error if the moment is neither a mark nor the beginning or the end.
func markOnly(flag, text string) error {
	if text == "" {
		return nil
	}
	m, err := source.ParseMoment(flag, text)
	if err != nil || m.Kind != source.Mark && m.Kind != source.Begin && m.Kind != source.End {
		return fmt.Errorf("--%s %s: leaks compares marks, begin and end; mark:%s is a mark of that name", flag, text, text)
	}
	return nil
}

// markNth is the name of a mark and which of that name, or 0: as other commands take it, with
// mark: before names that mean something else.
func markNth(text string) (name string, nth int) {
	if text == "" {
		return "", 0
	}
	m, _ := source.ParseMoment("", "mark:"+strings.TrimPrefix(text, "mark:")) // a mark has no wrong name
	return m.Name, m.Nth
}

// check checks the flags before anything is read.
func (o *leaksOptions) check(c *cobra.Command) (alloc.Filter, *name.Rules, error) {
	if err := flags.CheckBy(o.by); err != nil {
		return alloc.Filter{}, nil, err
	}
	filter, rules, err := o.dumpOptions.check()
	if err != nil {
		return filter, nil, err
	}
	if slices.Contains(filter.Regions, event.CB) {
		return filter, nil, fmt.Errorf("--region CB: circular buffers do not leak; choose %s", strings.Join(leakRegions, ", "))
	}
	if o.suppress != "" {
		f, err := os.Open(o.suppress)
		if err != nil {
			return filter, nil, fmt.Errorf("--suppress %s: %w", o.suppress, output.Pathless(err))
		}
		defer f.Close()
		if o.known, err = name.ReadSuppressions(o.suppress, f); err != nil {
			return filter, nil, fmt.Errorf("--suppress %w", err)
		}
	}
	return filter, rules, nil
}

func runLeaks(c *cobra.Command, o *leaksOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	if err := o.source.CheckWatch(c, args); err != nil {
		return err
	}
	if err := o.source.CheckMarkAt(); err != nil {
		return err
	}
	between, err := o.checkMarks(c)
	if err != nil {
		return err
	}
	filter, rules, err := o.check(c)
	if err != nil {
		return err
	}
	o.selection = source.NewSelection(filter.PIDs, filter.Devices)
	w, marks, lost, err := o.follow(between)
	if err != nil {
		return err
	}
	if err := o.selection.Check(w.In()); err != nil {
		return errors.Join(cmp.Or(o.source.Missing(), err), w.Status())
	}
	if err := marks.check(); err != nil {
		return errors.Join(o.markError(w, err), w.Status())
	}
	p := o.page(marks, filter, rules)
	if err := printView(p, o.json, "leaks"); err != nil {
		return err
	}
	for _, note := range append(o.pageNotes(p, marks, w), w.Notes...) {
		term.Warn(note)
	}
	if lost > 0 {
		term.Warn(fmt.Sprintf("there may be fewer leaks, or others: %s lost", page.Count(lost, "event")))
	}
	if err := w.Status(); err != nil {
		return err
	}
	if total := p.LeakedBytes(); c.Flags().Changed("fail-above") && total > uint64(o.failAbove) {
		term.Warn(fmt.Sprintf("%s leaked, more than --fail-above %s", page.Bytes(total), page.Bytes(uint64(o.failAbove))))
		return term.ExitStatus(leaked)
	}
	return nil
}

// follow brings a state up to the end of the events, and counts those that were lost.
func (o *leaksOptions) follow(between leakRange) (w *source.Summary, marks *leakMarks, lost uint64, err error) {
	marks = &leakMarks{leakRange: between, state: aggregate.New()}
	began := uint64(0)
	begin := func() {
		if began == 0 {
			began = source.MonotonicNow()
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.Ctx = ctx
	o.source.StateOnly = marks.whole() && marks.intervalNs == 0 && len(o.source.PIDs) == 0
	w, err = o.source.Watch(func(e *event.Event) {
		begin()
		if e.Kind == event.Lost {
			lost += e.Count
		}
		marks.apply(e)
		o.selection.See(e, marks.state)
		if o.source.File == "" && e.Kind == event.Checkpoint && (marks.over || o.selection.Gone()) {
			stop() // no later event helps
		}
	}, begin)
	if o.source.StateOnly && o.source.File != "" && err == nil { // its events may not all have been read
		lost = marks.state.Snapshot().LostEvents()
		marks.earlierMarks, marks.stepMarks = 0, 0
		for _, one := range marks.state.Marks() {
			if aggregate.IsStepMark(one.Name) {
				marks.stepMarks++
			}
		}
	}
	if w != nil && w.Live {
		begin()
		o.watchedNs = source.MonotonicNow() - began
	}
	return w, marks, lost, err
}

// markError says which recording has a mark that lies before the first known event.
func (o *leaksOptions) markError(w *source.Summary, err error) error {
	var earlier *earlierMarkError
	switch {
	case !errors.As(err, &earlier):
		return err
	case o.source.File != "":
		return fmt.Errorf("--to %s: the mark lies before %s begins, and what there was then is not known here", earlier.mark, w.Of)
	}
	from := cmp.Or(o.from, atBegin)
	return fmt.Errorf("--to %s: the mark is from before this command started, and what was freed since is not known: "+
		"ttmem leaks FILE --from %s --to %s of the service's recording (ttmem serve --record FILE)", earlier.mark, from, o.to)
}

// page judges the survivors, as the options say.
func (o *leaksOptions) page(m *leakMarks, filter alloc.Filter, rules *name.Rules) *leaks.Page {
	marks := m.between()
	ask := analyze.LeakOptions{ByRun: m.whole() || m.earlier, Suppressions: o.known}
	for _, one := range marks {
		ask.Times = append(ask.Times, one.TimeNs)
	}
	return leaks.New(analyze.Leaks(m.state, ask), leaks.Options{
		By: o.by, Limit: o.n, Filter: filter, Rules: rules, Suppress: o.suppress,
		NowNs: m.nowNs, WatchedNs: o.watchedNs, Allocated: m.state.BuffersAllocated(),
		Marks: marks, From: markText(m.from, m.fromNth), To: markText(m.to, m.toNth),
		Whole: m.whole(), FromIsEarlier: m.earlier, StepMarks: m.stepMarks,
	})
}

// pageNotes say which survivors and marks the page leaves out.
func (o *leaksOptions) pageNotes(p *leaks.Page, m *leakMarks, w *source.Summary) (notes []string) {
	if p.Others.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s from processes that ended are not listed: too many call sites; those with most buffers are kept",
			page.Count(p.Others.Count, "buffer"), page.Bytes(p.Others.Bytes)))
	}
	before, exact := "this command started", "`ttmem leaks FILE` of the service's recording (ttmem serve --record FILE) is exact"
	if o.source.File != "" {
		before, exact = w.Of+" begins", "the files before it are exact"
	}
	if m.earlier {
		notes = append(notes, fmt.Sprintf("the mark %q lies before %s: what was freed between the two is not known, so only call sites that grew since count; %s",
			p.Marks[0].Name, before, exact))
	} else if m.earlierMarks > 0 && o.from == "" && o.interval == 0 {
		notes = append(notes, fmt.Sprintf("%s from before %s not used; --from may name one", page.Count(uint64(m.earlierMarks), "mark"), before))
	}
	if p.StepMarks > 0 {
		notes = append(notes, fmt.Sprintf("%s of steps (ttmem steps, pytest --ttmem) not used; --from and --to may name them", page.Count(uint64(p.StepMarks), "mark")))
	}
	if p.EndedBefore.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s ended with a device or a process before the mark %q; --to end counts them",
			page.Count(p.EndedBefore.Count, "buffer"), page.Bytes(p.EndedBefore.Bytes), p.Marks[len(p.Marks)-1].Name))
	}
	return notes
}
