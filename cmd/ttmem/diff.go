package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/diff"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	viewOptions
	gate gate.Gate
	// baseline is the file of --baseline, and update whether to make it.
	baseline string
	update   bool
	// auto is true if no moment is selected.
	auto bool
	// calls are what is compared with --within.
	calls moment.Span
}

// listedChanges is how many changes are listed without -n.
const listedChanges = 20

func newDiff() *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff A B | FILE --from MARK | FILE -p PID | --baseline FILE B",
		Short: "Compare recordings, moments, or a recording and a process",
		Long: `Compares allocations in A and B by call stack, largest change first.

A and B are recordings, two moments of one file, or FILE and a process. Recordings are compared by
their unfreed memory (the moment left) or, if that is equal, by their peaks; with --baseline,
growth of either fails. docs/diff.md explains both.`,
		Example: `  ttmem diff yesterday.ttmem today.ttmem --at peak --by op
  ttmem diff model.ttmem --from warm --to trained
  ttmem diff --baseline model.json today.ttmem --update-baseline
  ttmem diff --baseline model.json today.ttmem --fail-above 1MiB`,
		RunE: func(c *cobra.Command, args []string) error { return runDiff(c, &o, args) },
		ValidArgsFunction: func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return source.CompleteRecordings(c, nil, text)
		},
	}
	flags.At(c, &o.at, "")
	o.span.Register(c, "left")
	flags.By(c, &o.by, "stack")
	flags.PIDs(c, &o.source.PIDs)
	flags.Regions(c, &o.regions, alloc.RegionNames(alloc.Regions))
	flags.Grep(c, &o.grep)
	o.gate.Register(c)
	c.Flags().StringVar(&o.baseline, "baseline", "", "compare with the baseline in `FILE`, and fail on growth")
	_ = c.MarkFlagFilename("baseline")
	c.Flags().BoolVar(&o.update, "update-baseline", false, "write the file of --baseline")
	flags.Limit(c, &o.n, listedChanges)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules, flags.Socket, flags.UTC)
	return c
}

// A diffSide is one side of a comparison.
type diffSide struct {
	diff.Side
	at moment.Moment
	// peaks are compared if the unfreed memory does not differ.
	peaks analyze.Parts
}

func (o *diffOptions) newSide(path string, at moment.Moment) *diffSide {
	return &diffSide{Side: diff.Side{Path: path, Moment: at.Text, When: at.String(), PIDs: o.source.PIDs}, at: at}
}

// sides returns the two sides that the arguments and flags select.
func (o *diffOptions) sides(c *cobra.Command, args []string) (a, b *diffSide, err error) {
	text := o.span
	marked, within := text.From != "" || c.Flags().Changed("to"), text.Within != ""
	o.source.Socket, o.source.SocketNamed = flags.SocketOf(c)
	live := len(args) == 1 && !marked && !within && (len(o.source.PIDs) > 0 || o.source.SocketNamed)
	o.lines = !c.Flags().Changed("by")
	o.auto = !marked && !live && !c.Flags().Changed("at") && o.span.Within == ""
	if o.baseline != "" || o.update {
		return o.sidesOfBaseline(c, args)
	}
	switch {
	case len(args) == 0:
		return nil, nil, fmt.Errorf("missing files to compare: %s yesterday.ttmem today.ttmem", c.CommandPath())
	case len(args) > 2:
		return nil, nil, fmt.Errorf("two files at a time: %s A B", c.CommandPath())
	case len(args) == 2 && args[1] == "":
		return nil, nil, errors.New("the name of the second file is empty: a shell variable may be unset; name a recording")
	case len(args) == 2 && marked:
		return nil, nil, errors.New("--from and --to need one file: for two, --at selects the moment")
	case o.source.SocketNamed && !live:
		return nil, nil, fmt.Errorf("--socket compares a file with a running process: %s FILE -p PID", c.CommandPath())
	case within && c.Flags().Changed("at"):
		return nil, nil, errors.New("--at is one moment: leave it out with --within")
	case within:
		if o.calls, err = source.ParseSpan(args[0], text, moment.End); err == nil && len(args) == 1 && o.calls.Nth > 0 {
			err = fmt.Errorf("--within %s is one call: give a second file, or %s to compare its first call with the last", o.calls.Call(), o.calls.Within)
		}
		side := func(path string) *diffSide {
			return &diffSide{Side: diff.Side{Path: path, Moment: o.calls.Call(), When: o.calls.String(), PIDs: o.source.PIDs}}
		}
		return side(args[0]), side(args[len(args)-1]), err
	case len(args) == 1 && !marked && !live:
		return nil, nil, fmt.Errorf("%s alone cannot be compared: give a second file, two of its moments with --from and --to, or a running process with -p PID", args[0])
	case len(args) == 1 && marked && c.Flags().Changed("at"):
		return nil, nil, errors.New("--at needs two files: for one, give --from and --to")
	case len(args) == 1 && marked && text.From == "":
		return nil, nil, errors.New("--to without --from: give both")
	}
	if !marked {
		at := moment.Moment{Kind: moment.Unfreed, Text: "left"}
		if c.Flags().Changed("at") {
			if at, err = source.ParseMoment("at", o.at); err != nil {
				return nil, nil, err
			}
		}
		at.Last = true
		a = o.newSide(args[0], at)
		if live {
			a.PIDs = nil // another run has other ids
			b = &diffSide{Side: diff.Side{Path: o.source.Place(), Moment: "now", When: "now", PIDs: o.source.PIDs, Live: true}, at: moment.Moment{Kind: moment.End}}
			return a, b, nil
		}
		return a, o.newSide(args[1], at), nil
	}
	span, err := source.ParseSpan(args[0], text, moment.End)
	return o.newSide(args[0], span.From), o.newSide(args[0], span.To), err
}

// sidesOfBaseline returns the sides of --baseline: its file, which is a baseline or a recording, and a recording.
func (o *diffOptions) sidesOfBaseline(c *cobra.Command, args []string) (a, b *diffSide, err error) {
	for _, flag := range []string{"from", "to", "within", flags.Socket} {
		if c.Flags().Changed(flag) {
			return nil, nil, fmt.Errorf("--%s does not go with a baseline, which has the moments left and peak: leave it out", flag)
		}
	}
	at := moment.Moment{Kind: moment.Unfreed, Text: "left", Last: true}
	switch {
	case o.baseline == "":
		return nil, nil, fmt.Errorf("--update-baseline needs a file: %s --baseline FILE B --update-baseline", c.CommandPath())
	case len(args) != 1:
		return nil, nil, fmt.Errorf("--baseline takes one recording: %s --baseline FILE B", c.CommandPath())
	case o.update && o.gate.Checks():
		return nil, nil, errors.New("--update-baseline checks nothing: leave out --fail-above")
	case c.Flags().Changed("at") && o.update:
		return nil, nil, errors.New("--update-baseline writes the moments left and peak: leave out --at")
	case c.Flags().Changed("at") && o.at != "left" && o.at != "peak":
		return nil, nil, fmt.Errorf("--at %s: a baseline has the moments left and peak", o.at)
	case o.by == "class" || o.by == "process":
		return nil, nil, fmt.Errorf("--by %s: a baseline does not have it; choose stack, op, line or owner", o.by)
	case c.Flags().Changed("at") && o.at == "peak":
		at = moment.Moment{Kind: moment.Peak, Text: "peak", Last: true}
	}
	o.auto = !c.Flags().Changed("at")
	o.gate.Always = !o.update
	a, b = o.newSide(o.baseline, at), o.newSide(args[0], at)
	a.PIDs = nil // another run has other ids
	return a, b, nil
}

// readBaseline reads the sides of --baseline.
func (o *diffOptions) readBaseline(a, b *diffSide) (*source.Summary, error) {
	f, err := flags.Open("--baseline", a.Path)
	if err != nil {
		return nil, fmt.Errorf("%w; --update-baseline makes it", err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	if first, _ := in.Peek(1); string(first) != "{" {
		return o.read(a, b)
	}
	baseline, err := diff.ReadBaseline(in)
	if err != nil {
		return nil, fmt.Errorf("--baseline %s: %w; --update-baseline makes it again", a.Path, err)
	}
	a.Parts, a.peaks, a.Snap = baseline.Left, baseline.Peaks, &memory.Snapshot{}
	if a.at.Kind == moment.Peak {
		a.Parts = baseline.Peaks
	}
	return o.readSides(&source.Recording{Path: b.Path}, b)
}

// updateBaseline writes the file of --baseline.
func (o *diffOptions) updateBaseline(b *diffSide) error {
	w, err := o.readSides(&source.Recording{Path: b.Path}, b)
	if err == nil {
		err = w.Finish(nil)
	}
	if err != nil {
		return err
	}
	if b.Losses.Any() {
		return fmt.Errorf("%s: events were lost, so it is no baseline: record it again", b.Path)
	}
	f, err := output.Create("--baseline", o.baseline)
	if err != nil {
		return err
	}
	if err := f.Finish((&diff.Baseline{Left: b.Parts, Peaks: b.peaks}).Write(f.W)); err != nil {
		return err
	}
	term.Warn(fmt.Sprintf("%s has the unfreed memory and the peaks of %s", o.baseline, b.Path))
	return nil
}

func runDiff(c *cobra.Command, o *diffOptions, args []string) error {
	o.format, o.rules, o.utc = flags.Format(c), flags.RulesFile(c), flags.WantsUTC(c)
	a, b, err := o.sides(c, args)
	if err != nil {
		return err
	}
	if err := flags.CheckBy(o.by); err != nil { // by may be ""
		return err
	}
	filter, rules, err := o.check(alloc.Regions)
	if err == nil {
		err = o.gate.Check()
	}
	if err != nil {
		return err
	}
	if o.format.JSON && !c.Flags().Changed("limit") {
		o.n = 0
	}
	if o.update {
		return o.updateBaseline(b)
	}
	read := o.read
	if o.baseline != "" {
		read = o.readBaseline
	}
	if o.span.Within != "" {
		read = func(a, b *diffSide) (*source.Summary, error) { return o.readCalls(len(args) == 1, a, b) }
	}
	w, err := read(a, b)
	if err != nil {
		return err
	}
	for _, pid := range o.source.PIDs { // of either side
		one := []int{pid}
		if source.CheckPIDs(one, a.Snap, "") == nil {
			continue
		}
		if err := source.CheckPIDs(one, b.Snap, "in "+b.Path); err != nil {
			return err
		}
	}
	if b.Live && !c.Flags().Changed("by") && !b.Parts.HasStacks() {
		o.by = "region" // a State that was read from memory has no more
	}
	d := o.compare(a, b, alloc.Namer{Rules: rules, Filter: filter})
	for _, side := range []*diffSide{a, b} {
		if o.utc && side.TimeNs > 0 {
			side.When += ", " + side.Clock.UTC(side.TimeNs) + " UTC"
		}
	}
	if err := output.Print(d, o.format, page.NewSupplement(page.Clock{}, a.Snap, b.Snap), "difference"); err != nil {
		return err
	}
	result := gate.Result{Of: strings.Join(slices.Compact([]string{a.Path, b.Path}), " "), Status: w.Finish(nil), Findings: findings(d.Growth(), func(r *alloc.Row) string {
		return fmt.Sprintf("+%s of %s", page.Bytes(uint64(diff.Change(r))), r.Region)
	})}
	for _, side := range []*diffSide{a, b} {
		result.Lost = result.Lost || side.Losses.Any()
		for _, doubt := range page.Doubts(side.Losses, "may lack buffers, or have too many") {
			term.Warn(side.Path + ": " + doubt)
		}
		if side.Path == b.Path {
			break
		}
	}
	if region, grown := d.Grown(); grown > int64(o.gate.Above) {
		result.Exceeded = fmt.Sprintf("%s has grown by %s, which is over %s", region, page.Bytes(uint64(grown)), page.Bytes(uint64(o.gate.Above)))
	}
	return o.gate.Judge(result)
}

// compare compares the unfreed memory. If that does not differ and no moment is selected, it
// compares the peaks.
func (o *diffOptions) compare(a, b *diffSide, names alloc.Namer) *diff.Difference {
	ask := diff.Options{By: o.by, Limit: o.n, Lines: o.lines && !o.format.JSON}
	d := diff.New(&a.Side, &b.Side, names, ask)
	_, grown := d.Grown()
	if !o.auto || len(d.Groups) > 0 && (o.baseline == "" || grown > int64(o.gate.Above)) {
		return d
	}
	ask.Note = "The unfreed memory is the same in both: these are the peaks."
	switch {
	case len(d.Groups) > 0:
		ask.Note = "The unfreed memory did not grow too much: these are the peaks."
	case len(d.Totals) == 0:
		ask.Note = "Both freed everything: these are the peaks."
	}
	peak := moment.Moment{Kind: moment.Peak, Text: "peak"}
	for _, side := range []*diffSide{a, b} {
		side.Moment, side.When, side.Parts, side.TimeNs = peak.Text, peak.String(), side.peaks, 0
	}
	return diff.New(&a.Side, &b.Side, names, ask)
}

// read reads both sides, at the same time if each takes one processor. It shows one side's
// progress: that of a running process, whose memory takes longer to read, or of the first file.
func (o *diffOptions) read(a, b *diffSide) (*source.Summary, error) {
	file := func(path string, quiet bool) source.Source { return &source.Recording{Path: path, Quiet: quiet} }
	if a.Path == b.Path {
		return o.readSides(file(a.Path, false), a, b)
	}
	other := file(b.Path, true)
	if b.Live {
		other = o.source.Present(b.PIDs)
	}
	var first *source.Summary
	var firstErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		first, firstErr = o.readSides(file(a.Path, b.Live), a)
	}()
	second, err := o.readSides(other, b)
	<-done
	if err := cmp.Or(firstErr, err); err != nil {
		return nil, err
	}
	return &source.Summary{Summary: moment.Summary{Notes: slices.Concat(first.Notes, second.Notes), Failed: first.Failed || second.Failed}}, nil
}

// readSides reads sides of one source.
func (o *diffOptions) readSides(of source.Source, sides ...*diffSide) (*source.Summary, error) {
	var w source.Summary
	for _, side := range sides {
		at := side.at
		if at.Kind == moment.Peak {
			at = moment.Moment{Kind: moment.End} // whose state has the peaks of all regions
		}
		end, err := of.StateAt(at, func(s *source.State, regions moment.Regions) {
			switch side.at.Kind {
			case moment.Peak:
				side.Parts.AddPeaks(s.State)
				return
			case moment.Unfreed:
				side.peaks.AddPeaks(s.State)
				if others := side.Parts.AddUnfreed(s.State); others.Count > 0 {
					w.Notes = append(w.Notes, fmt.Sprintf("%s: %s of %s not compared: from processes that ended, with too many call sites",
						side.Path, page.Count(others.Count, "buffer"), page.Bytes(others.Bytes)))
				}
			default:
				side.Parts.AddLive(s.State, regions)
			}
			side.TimeNs = s.NowNs
		})
		if err != nil {
			return nil, err
		}
		side.end(end, o.source.Clock())
		if side.Live && len(side.PIDs) == 0 {
			end.Notes = page.WithOthers(end.Notes, end.Others)
		}
		if side == sides[len(sides)-1] { // one source
			w.Notes, w.Failed = slices.Concat(end.Notes, w.Notes), end.Failed
		}
	}
	return &w, nil
}

// end takes the state at the end of the source.
func (s *diffSide) end(end *source.State, clock page.Clock) {
	s.Snap, s.Clock = end.Snapshot(), clock
	s.Losses = s.Snap.Losses(s.Live, s.PIDs)
	if !s.Live {
		s.Clock = source.Clock(end.File)
	}
}

// readCalls reads what calls of a function allocated and left: all calls in each file or, in one file, the
// first and the last one.
func (o *diffOptions) readCalls(oneFile bool, sides ...*diffSide) (*source.Summary, error) {
	var w source.Summary
	for i, side := range sides {
		r := &source.Recording{Path: side.Path, PIDs: side.PIDs}
		calls, err := r.Intervals(o.calls)
		switch {
		case err != nil:
			return nil, err
		case oneFile && len(calls) == 1:
			return nil, fmt.Errorf("--within %s: it ran once %s: give a second file", o.calls.Within, source.In(side.Path))
		case oneFile:
			nth := 1 + i*(len(calls)-1)
			calls = calls[nth-1 : nth]
			side.When = fmt.Sprintf("%s, the %s of its calls", side.When, page.Ordinal(nth))
			side.Moment = fmt.Sprintf("%s#%d", o.calls.Within, nth)
		}
		begin := func(s *aggregate.State, at memory.Point) { s.FollowFrom(at.TimeNs) }
		end, err := r.Play(o.calls, calls.Hull(), begin, func(s *source.State, _ moment.Regions) {
			side.Parts.AddSurvivors(s.State, calls.Times())
			side.TimeNs = s.NowNs
		})
		if err != nil {
			return nil, err
		}
		side.end(end, source.Clock(end.File))
		side.Span = source.SpanOf(&o.calls, calls)
		if !oneFile || i == 0 {
			w.Notes, w.Failed = append(w.Notes, end.Notes...), w.Failed || end.Failed
		}
	}
	return &w, nil
}
