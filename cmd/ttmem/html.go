package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/between"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	page_advise "ttmem/cmd/ttmem/internal/page/advise"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/cmd/ttmem/internal/page/ops"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/internal/web"
	"ttmem/tracer/event"
)

// The largest numbers of operations, failures and lines with advice on a page.
const (
	pageOperations = 500
	pageFailures   = 200
	pageLines      = 100
)

// htmlOptions are the flags of html.
type htmlOptions struct {
	viewOptions
	output string
	// most is the largest number of events, and written how many of the recording's are on the page.
	most    int
	written uint64
	// losses are those of a recording that was not read to its end.
	losses *memory.AllLosses
}

// maxPageEvents is the largest number of events of a page, for which ttmem and the browser need
// about 1 GB each.
const maxPageEvents = 5_000_000

func newHTML() *cobra.Command {
	o := htmlOptions{most: maxPageEvents}
	c := &cobra.Command{
		Use:   "html FILE",
		Short: "Write a recording as one self-contained web page",
		Long: `Writes a recording as one HTML file, which needs neither network nor ttmem: a timeline of every
chip and region and, for the moment or range that you select on it, flame graphs, call sites,
addresses, operations, leaks, failed allocations and advice.

Without -o, the page is a file beside the recording, named after it. It contains the command lines
and source paths of the recording. docs/html.md explains the page.`,
		Example: `  ttmem html model.ttmem
  ttmem html model.ttmem -o report.html
  ttmem html model.ttmem --from warm --to trained -o training.html
  ttmem html model.ttmem --within forward#3 -o forward.html
  ttmem html model.ttmem -p 4242 -o one.html`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && c.ArgsLenAtDash() < 0 {
				return errors.New("missing recording: ttmem html model.ttmem")
			}
			return nil
		},
		PreRunE: o.take,
		RunE:    func(c *cobra.Command, _ []string) error { return writeHTML(c.Context(), &o) },
	}
	c.Flags().StringVarP(&o.output, "output", "o", "", "write the page to `FILE` (-: standard output)")
	_ = c.MarkFlagFilename("output", "html")
	flags.PIDs(c, &o.source.PIDs)
	o.span.Register(c, "end")
	flags.Takes(c, flags.Rules)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

func writeHTML(ctx context.Context, o *htmlOptions) error {
	rules, err := flags.ReadRules(o.rules)
	if err != nil {
		return err
	}
	times, err := o.times(moment.EveryRegion)
	if err != nil {
		return err
	}
	if err := o.choosePath(); err != nil {
		return err
	}
	out, err := output.Create("-o", o.output)
	if err != nil {
		return err
	}
	defer out.Discard()
	p, state := web.New(), aggregate.New()
	state.KeepSites()
	w, err := o.play(p, state, times)
	if err != nil {
		return err
	}
	state.Advance(w.EndNs)
	state.Settle()
	switch err := source.CheckPIDs(o.source.PIDs, state.Totals(), w.In()); {
	case err != nil:
		return cmp.Or(o.source.Missing(), err)
	case p.Events() == 0:
		return fmt.Errorf("%s has no events", w.Of)
	}
	if !p.HasStacks() {
		w.Notes = append(w.Notes, w.Of+" has no call stacks: the page has sizes, times, addresses and known owners only")
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	doubts := o.doubts(state)
	err = out.Finish(o.write(out.Until(ctx), p, state, w, rules, doubts))
	switch {
	case errors.Is(err, term.ErrInterrupted):
		return err
	case err != nil:
		return fmt.Errorf("-o %s: %w", o.output, err)
	}
	if o.output != "-" {
		term.Warn(fmt.Sprintf("wrote %s to %s: open it in a browser", page.Count(o.written, "event"), o.output))
	}
	return w.Finish(doubts)
}

// play adds the events of a span, from its beginning to its end; all if times is nil.
func (o *htmlOptions) play(p *web.Page, state *aggregate.State, times memory.Intervals) (*source.Summary, error) {
	since, until := uint64(0), uint64(math.MaxUint64)
	if times != nil {
		since, until = times[0].FromNs, times[len(times)-1].ToNs
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.Ctx = ctx
	first, over := uint64(0), false
	sinceFirst := func(e *event.Event) uint64 { return e.TimeNs - min(e.TimeNs, first) }
	var from func(e *event.Event) bool
	if since > 0 {
		from = func(e *event.Event) bool { return sinceFirst(e) >= since }
	}
	each := p.Play(state, from)
	w, err := o.source.Watch(func(e *event.Event) {
		if first == 0 {
			first = e.TimeNs
		}
		if over = over || sinceFirst(e) > until || p.Events() > o.most; over {
			state.ApplyLater(e)
			stop()
			return
		}
		if each(e); e.Kind != event.Checkpoint && p.Events() > 0 {
			o.written++
		}
	})
	switch {
	case p.Events() > o.most:
		return nil, fmt.Errorf("%s has more than %s: choose a part with --from and --to", o.source.File, page.Count(uint64(o.most), "event"))
	case over && errors.Is(err, term.ErrInterrupted):
		w, err = &source.Summary{Of: o.source.File}, source.AddOwners(o.source.File, state)
		if err == nil {
			var losses memory.AllLosses
			losses, err = source.LossesAt(o.source.File, o.source.PIDs, state)
			o.losses = &losses
		}
	}
	p.Own(state)
	if w != nil && times != nil {
		span, _ := source.ParseSpan(o.source.File, o.span, moment.After)
		w.Of += ", " + span.String()
	}
	return w, err
}

// choosePath names the page if the user did not.
func (o *htmlOptions) choosePath() error {
	if o.output == "" && o.source.File == "-" {
		return errors.New("the recording is standard input: name the page with -o")
	}
	var err error
	if o.output, err = outputPath(o.output, o.source.File, ".html"); err != nil {
		return err
	}
	if o.output == "-" && term.IsTerminal(os.Stdout) {
		return errors.New("-o -: standard output is a terminal: name a file")
	}
	return nil
}

// write writes the page with the documents of the whole recording.
func (o *htmlOptions) write(out io.Writer, p *web.Page, state *aggregate.State, w *source.Summary, rules *name.Rules, doubts []string) error {
	documents, err := pageDocuments(state, w, rules)
	if err == nil {
		err = o.addAdvice(documents)
	}
	if err != nil {
		return err
	}
	return p.Write(out, state, web.Options{
		Of: w.Of, Clock: o.source.Clock(), Rules: rules, Notes: slices.Concat(w.Notes, doubts), Documents: documents,
	})
}

// addAdvice adds what is held after its last use, for a page of a whole recording in which uses are recorded.
func (o *htmlOptions) addAdvice(documents map[string]json.RawMessage) error {
	if span, err := source.ParseSpan(o.source.File, o.span, moment.After); err != nil || !span.IsWhole() {
		return err
	}
	a, err := adviceUnasked(&source.Recording{Path: o.source.File, PIDs: o.source.PIDs, Quiet: true})
	if a != nil && a.Known > 0 {
		documents["advise"] = document.Append(nil, (&page_advise.Page{Advice: a, Limit: pageLines}).Document(), nil)
	}
	return err
}

// doubts returns what makes the figures of the page doubtful.
func (o *htmlOptions) doubts(state *aggregate.State) []string {
	snap := state.Snapshot()
	losses := snap.Losses(false, o.source.PIDs)
	if o.losses != nil {
		losses = *o.losses
	}
	return append(alloc.Overlaps(snap, false, o.source.PIDs), page.Doubts(losses, "figures may be wrong")...)
}

func pageDocuments(state *aggregate.State, w *source.Summary, rules *name.Rules) (map[string]json.RawMessage, error) {
	snap := state.Snapshot()
	leaked := leaksOptions{viewOptions: viewOptions{by: "stack"}}
	operations := ops.New(ops.Options{Of: w.Of, Limit: pageOperations, Rules: rules, Snapshot: snap})
	operations.Add(state, moment.EveryRegion)
	failures := &oom.Page{Of: w.Of, Limit: pageFailures, Snapshot: snap}
	failures.Choose()
	documents := make(map[string]json.RawMessage)
	for name, view := range map[string]output.View{
		"leaks": leaked.page(&between.Follower{Span: moment.Whole, State: state}, &source.State{State: state, Summary: *w}, alloc.Filter{}, rules),
		"ops":   operations, "oom": failures,
	} {
		documents[name] = document.Append(nil, view.Document(), nil)
	}
	return documents, nil
}
