package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/between"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/leaks"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// leaksOptions select which survivors are leaks, and how to show them.
type leaksOptions struct {
	viewOptions
	suppress string
	gate     gate.Gate
	// known are the suppressions in the file of --suppress
	known *name.Suppressions
	// watchedFrom is when running processes began to be watched; 0 if they were not
	watchedFrom uint64
}

// listedLeaks is the number of leaks listed without -n.
const listedLeaks = 20

func newLeaks() *cobra.Command {
	var o leaksOptions
	c := &cobra.Command{
		Use:   "leaks [FILE | -- COMMAND]",
		Short: "Show call sites that allocate again and again and never free",
		Long: `Shows call sites that allocate again and again and never free. Between two marks, it shows the
buffers that were allocated after the first and are live at the second.

FILE is a recording; COMMAND is run and traced to its end. Without either, running processes are
watched until Ctrl-C, through the host's service (ttmem serve), or one of sudo. docs/leaks.md explains
marks, and what counts as a leak.`,
		Example: `  ttmem leaks model.ttmem
  ttmem leaks -p 4242 --duration 1m
  ttmem leaks model.ttmem --from warm --to done --within forward
  ttmem leaks --fail-above 1MiB --junit leaks.xml -- python test.py
  ttmem leaks model.ttmem --json | jq '.leaks[] | {bytes, count, name}'`,
		PreRunE: o.take,
		RunE:    func(c *cobra.Command, _ []string) error { return runLeaks(c, &o) },
	}
	o.source.RegisterWatch(c)
	o.source.Owners = true
	o.span.Register(c, "end")
	flags.By(c, &o.by, "stack")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, leakRegions)
	c.Flags().StringVar(&o.suppress, "suppress", "", "ignore call stacks that match a line of `FILE`")
	_ = c.MarkFlagFilename("suppress")
	o.gate.Register(c)
	flags.Limit(c, &o.n, listedLeaks)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules)
	return c
}

// leakRegions are the regions of buffers.
var leakRegions = alloc.RegionNames(page.Regions)

// check checks the flags before anything is read.
func (o *leaksOptions) check() (alloc.Filter, *name.Rules, error) {
	filter, rules, err := o.viewOptions.check(alloc.Regions)
	if err == nil {
		err = o.gate.Check()
	}
	if err != nil {
		return filter, nil, err
	}
	if slices.Contains(filter.Regions, event.CB) {
		return filter, nil, fmt.Errorf("--region CB: circular buffers do not leak; choose %s", strings.Join(leakRegions, ", "))
	}
	if o.suppress != "" {
		f, err := flags.Open("--suppress", o.suppress)
		if err != nil {
			return filter, nil, err
		}
		defer f.Close()
		if o.known, err = name.ReadSuppressions(o.suppress, f); err != nil {
			return filter, nil, fmt.Errorf("--suppress %w", err)
		}
	}
	return filter, rules, nil
}

func runLeaks(c *cobra.Command, o *leaksOptions) error {
	span, err := source.ParseSpan(o.source.File, o.span, moment.Mark)
	if err != nil {
		return err
	}
	filter, rules, err := o.check()
	if err != nil {
		return err
	}
	span.From.Peaks, span.To.Peaks = filter.SelectsPeak, filter.SelectsPeak
	w, marks, err := o.follow(span)
	if err != nil {
		return err
	}
	snap := marks.State.Snapshot()
	if err := checkSelected(&filter, w.Totals(), w.Of); err != nil {
		return errors.Join(cmp.Or(o.source.Missing(), err), w.Status())
	}
	if err := marks.Check(w.In()); err != nil {
		return errors.Join(err, w.Status())
	}
	p := o.page(marks, w, filter, rules)
	p.Losses.Lost = map[string]uint64{}
	if snap.LostEvents > marks.LostBefore {
		p.Losses = snap.Losses(false, filter.PIDs)
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), snap), "leaks"); err != nil {
		return err
	}
	w.Notes = append(o.pageNotes(p, marks, w), w.Notes...)
	result := gate.Result{Of: w.Of, Lost: p.Losses.Any(), Findings: findings(p.Leaked(), func(r *alloc.Row) string {
		return fmt.Sprintf("%s leaked", page.Bytes(r.Amounts[0].Bytes))
	})}
	result.Status = w.Finish(page.Doubts(p.Losses, "there may be fewer leaks, or others"))
	total, undecided := p.LeakedBytes(), p.Undecided()
	switch {
	case result.Status != nil:
	case total > uint64(o.gate.Above):
		result.Exceeded = fmt.Sprintf("%s leaked, more than --fail-above %s", page.Bytes(total), page.Bytes(uint64(o.gate.Above)))
	case undecided != "" && o.gate.Checks() && !result.Lost:
		term.Warn(undecided + "; --fail-above does not count them")
	}
	return o.gate.Judge(result)
}

// findings returns rows as the findings of a gate.
func findings(rows []*alloc.Row, what func(*alloc.Row) string) []gate.Finding {
	return page.Each(rows, func(r *alloc.Row) gate.Finding {
		if r.Site == nil {
			return gate.Finding{Text: what(r)}
		}
		f := gate.Finding{Text: what(r) + ": " + r.Text}
		if calls := name.UserCalls(r.Stack.Frames()); len(calls) > 0 {
			f.File, f.Line = calls[0].File, calls[0].Line
		}
		return f
	})
}

// follow brings a state to the end of the events. It returns the state of the source.
func (o *leaksOptions) follow(span moment.Span) (*source.State, *between.Follower, error) {
	if o.source.File != "" && !span.IsWhole() {
		return o.followRecording(&source.Recording{Path: o.source.File, PIDs: o.source.PIDs}, span)
	}
	w, marks, err := o.watch(span)
	if err != nil || span.IsWhole() || len(o.source.Command) > 0 || marks.Check(w.In()) != nil {
		return w, marks, err
	}
	recording, closing, err := o.source.Past()
	if err != nil {
		return nil, nil, err
	}
	defer closing()
	past, marks, err := o.followRecording(recording, span)
	if err == nil {
		w.State = past.State
	}
	return w, marks, err
}

// followRecording follows the survivors of a span of a recording.
func (o *leaksOptions) followRecording(r *source.Recording, span moment.Span) (*source.State, *between.Follower, error) {
	marks := &between.Follower{Span: span}
	list, err := r.Intervals(span)
	if err == nil {
		marks.Take(list)
		err = r.Follow(span, list, marks.Begin, marks.End)
	}
	if err != nil {
		return nil, nil, cmp.Or(o.source.Missing(), err)
	}
	end, w, err := r.End()
	if err != nil {
		return nil, nil, err
	}
	return &source.State{State: end, Summary: *w}, marks, nil
}

// watch applies all events to a state; while processes run, until the marks of the span are there.
func (o *leaksOptions) watch(span moment.Span) (*source.State, *between.Follower, error) {
	marks := &between.Follower{Span: span, State: aggregate.New()}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.Ctx = ctx
	o.source.StateOnly = o.source.File != "" && len(o.source.PIDs) == 0
	handle := marks.Apply
	if o.source.StateOnly {
		handle = marks.State.Apply
	}
	if o.source.File == "" && len(o.source.Command) == 0 {
		o.watchedFrom = host.Now()
	}
	said := false
	w, err := o.source.Watch(func(e *event.Event) {
		handle(e)
		if o.source.File != "" || e.Kind != event.Checkpoint {
			return
		}
		marks.State.FreshSince(o.watchedFrom)
		if marks.Found() || marks.IsReversed() || o.areGone(marks.State) {
			stop() // no later event matters
			return
		}
		if text := marks.Awaits(); text != "" && !said {
			said = true
			term.Warn(text)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return &source.State{State: marks.State, Summary: *w}, marks, nil
}

// areGone reports whether a selected process was not seen and does not run. Existing memory must
// be known.
func (o *leaksOptions) areGone(s *aggregate.State) bool {
	return slices.ContainsFunc(o.source.PIDs, func(pid int) bool {
		return source.CheckPIDs([]int{pid}, s.Totals(), "") != nil && host.Ended(pid)
	})
}

// page judges the survivors, with the rules of the options.
func (o *leaksOptions) page(m *between.Follower, w *source.State, filter alloc.Filter, rules *name.Rules) *leaks.Page {
	marks := m.Marks()
	ask := analyze.LeakOptions{
		WatchedFromNs: o.watchedFrom, Suppressions: o.known,
		Born:  m.Calls,
		Times: page.Each(marks, func(one leaks.Mark) uint64 { return one.TimeNs }),
	}
	list := leaks.Options{
		By: o.by, Lines: o.lines, Limit: o.n, Filter: filter, Rules: rules, Suppress: o.suppress,
		NowNs: m.State.Now(), Allocated: m.State.BuffersAllocated(),
		Marks: marks, From: m.From.MarkName(), To: m.To.MarkName(), Within: m.Call(), Span: m.Of,
		StepMarks: m.StepMarks(), Cut: w.Cut, Processes: m.State.Totals().Processes,
	}
	if w.Live && m.IsWhole() {
		list.WatchedNs = w.EndNs - w.BeganNs
	}
	return leaks.New(analyze.Leaks(m.State, ask), list)
}

// isOrAre returns the verb for n things.
func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// pageNotes returns which survivors and marks the page leaves out.
func (o *leaksOptions) pageNotes(p *leaks.Page, m *between.Follower, w *source.State) (notes []string) {
	if p.Others.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s from processes that ended are not listed: too many call sites; only those with the most buffers are kept",
			page.Count(p.Others.Count, "buffer"), page.Bytes(p.Others.Bytes)))
	}
	before := "this command started"
	if o.source.File != "" {
		before = w.Of + " begins"
	}
	if n := m.MarksBefore(); n > 0 && m.IsWhole() {
		notes = append(notes, fmt.Sprintf("%s from before %s %s not used; name one with --from", page.Count(uint64(n), "mark"), before, isOrAre(n)))
	}
	if p.StepMarks > 0 {
		notes = append(notes, fmt.Sprintf("%s of steps (ttmem steps, pytest --ttmem) %s not used; name them with --from and --to", page.Count(uint64(p.StepMarks), "mark"), isOrAre(p.StepMarks)))
	}
	if p.EndedBefore.Count > 0 {
		end := fmt.Sprintf("the mark %q; --to end counts them", p.Marks[len(p.Marks)-1].Name)
		if m.Within != "" {
			end = "the end of the last call"
		}
		notes = append(notes, fmt.Sprintf("%s of %s ended with a device or a process before %s",
			page.Count(p.EndedBefore.Count, "buffer"), page.Bytes(p.EndedBefore.Bytes), end))
	}
	return notes
}
