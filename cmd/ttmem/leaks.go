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
	"ttmem/tracer/host"
)

// leaksOptions say which survivors are leaks, and how they are shown.
type leaksOptions struct {
	viewOptions
	from, to string
	// interval is between marks that leaks places itself; 0: it places none
	interval  time.Duration
	suppress  string
	failAbove flags.Size
	// known are the suppressions of the file that --suppress names
	known *name.Suppressions
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
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules)
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
	r = leakRange{intervalNs: uint64(o.interval), all: o.from == "" && o.to == "" && len(o.source.Stacks.MarkAt) > 0}
	if r.from, err = parseMark("from", o.from, source.Begin); err == nil {
		r.to, err = parseMark("to", o.to, source.End)
	}
	return r, err
}

// parseMark is the mark that a flag names; the zero value if it names the end of the range
// that is no mark.
func parseMark(flag, text string, end source.Kind) (markName, error) {
	if text == "" {
		return markName{}, nil
	}
	m, err := source.ParseMoment(flag, text)
	switch {
	case err == nil && m.Kind == end:
		return markName{}, nil
	case err == nil && (m.Kind == source.Begin || m.Kind == source.End): // a mark of that name
		return markName{name: text}, nil
	case err != nil || m.Kind != source.Mark:
		return markName{}, fmt.Errorf("--%s %s: leaks compares marks, begin and end; mark:%s is a mark of that name", flag, text, text)
	}
	return markName{m.Name, m.Nth}, nil
}

// check checks the flags before anything is read.
func (o *leaksOptions) check() (alloc.Filter, *name.Rules, error) {
	if err := flags.CheckBy(o.by); err != nil { // which may be ""
		return alloc.Filter{}, nil, err
	}
	filter, rules, err := o.viewOptions.check(alloc.Regions)
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
	filter, rules, err := o.check()
	if err != nil {
		return err
	}
	w, marks, err := o.follow(between)
	if err != nil {
		return err
	}
	snap := marks.state.Snapshot()
	if err := checkSelected(&filter, snap, w.Of); err != nil {
		return errors.Join(cmp.Or(o.source.Missing(), err), w.Status())
	}
	if err := marks.check(); err != nil {
		return errors.Join(o.markError(w, err), w.Status())
	}
	p := o.page(marks, w, filter, rules)
	if err := printTimed(p, o.json, o.source.Clock(), "leaks"); err != nil {
		return err
	}
	w.Notes = append(o.pageNotes(p, marks, w), w.Notes...)
	var doubts []string
	if snap.LostEvents > marks.lostBefore {
		doubts = page.Doubts(snap.Losses(false, filter.PIDs), "there may be fewer leaks, or others")
	}
	if err := finish(w, doubts); err != nil {
		return err
	}
	if total := p.LeakedBytes(); c.Flags().Changed("fail-above") && total > uint64(o.failAbove) {
		term.Warn(fmt.Sprintf("%s leaked, more than --fail-above %s", page.Bytes(total), page.Bytes(uint64(o.failAbove))))
		return term.ExitStatus(leaked)
	}
	return nil
}

// follow brings a state up to the end of the events.
func (o *leaksOptions) follow(between leakRange) (*source.Summary, *leakMarks, error) {
	marks := &leakMarks{leakRange: between, state: aggregate.New()}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.Ctx = ctx
	o.source.StateOnly = o.source.File != "" && marks.whole() && marks.intervalNs == 0 && len(o.source.PIDs) == 0
	handle := marks.apply
	if o.source.StateOnly {
		handle = marks.state.Apply
	}
	w, err := o.source.Watch(func(e *event.Event) {
		handle(e)
		if o.source.File == "" && e.Kind == event.Checkpoint && (marks.over || marks.known || o.areGone(marks.state)) {
			stop() // no later event helps
		}
	})
	return w, marks, err
}

// areGone reports whether a selected process was not seen and does not run. What was allocated
// before must be known.
func (o *leaksOptions) areGone(s *aggregate.State) bool {
	return slices.ContainsFunc(o.source.PIDs, func(pid int) bool {
		return source.CheckPIDs([]int{pid}, s.Snapshot(), "") != nil && host.Ended(pid)
	})
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
	return fmt.Errorf("--to %s: not all that was live at this mark is known (docs/leaks.md): "+
		"ttmem leaks FILE --from %s --to %s of the service's recording (ttmem serve --record FILE)", earlier.mark, from, o.to)
}

// page judges the survivors, as the options say.
func (o *leaksOptions) page(m *leakMarks, w *source.Summary, filter alloc.Filter, rules *name.Rules) *leaks.Page {
	marks := m.between()
	ask := analyze.LeakOptions{ByRun: m.whole() || m.earlier, Suppressions: o.known}
	for _, one := range marks {
		ask.Times = append(ask.Times, one.TimeNs)
	}
	list := leaks.Options{
		By: o.by, Limit: o.n, Filter: filter, Rules: rules, Suppress: o.suppress,
		NowNs: m.state.Now(), Allocated: m.state.BuffersAllocated(),
		Marks: marks, From: m.from.String(), To: m.to.String(),
		Whole: m.whole(), FromIsEarlier: m.earlier, StepMarks: m.unused(true),
	}
	if w.Live && !m.known {
		list.WatchedNs = w.EndNs - w.BeganNs
	}
	return leaks.New(analyze.Leaks(m.state, ask), list)
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
	} else if n := m.unused(false); n > 0 && o.from == "" && o.to == "" && o.interval == 0 {
		notes = append(notes, fmt.Sprintf("%s from before %s not used; --from may name one", page.Count(uint64(n), "mark"), before))
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
