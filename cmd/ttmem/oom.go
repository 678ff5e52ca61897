package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/oom"
	"ttmem/cmd/ttmem/record"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// listedFailures is the number of failures shown without -n.
const listedFailures = 10

// newOOM returns the command oom. kept is the folder in which the installed service keeps recordings.
func newOOM(kept string) *cobra.Command {
	var o viewOptions
	var changes whatIf
	c := &cobra.Command{
		Use:   "oom [FILE | DIR | -- COMMAND]",
		Short: "Show why allocations failed, and what to free",
		Long: `Shows each failed allocation: its size and line, the free memory in each bank, why it failed,
and what to free or set so that it fits. It also shows exceeded limits of L1, such as circular
buffers that are too large, and lists operations that failed for other reasons at the end.

FILE is a recording; DIR is a folder of --crash-dir, of which the newest recording is shown; COMMAND
is run and traced to its end. Otherwise, the failures come from the host's service (ttmem serve) or,
if it has seen none, from the newest recording of the installed service. Without a service, as root,
running processes are watched until Ctrl-C. docs/oom.md explains the reasons. The newest 1000
failures are kept.

Advice about a recording is proved: the allocations are replayed with it. --without and --set
replay other changes.`,
		Example: `  ttmem oom model.ttmem
  sudo ttmem oom -- python model.py
  sudo ttmem oom                          the newest on this host
  sudo ttmem oom -p 4242
  ttmem oom model.ttmem -n 1              the last one
  ttmem oom model.ttmem --without model.py:31 --set l1_small_size=32KiB
  ttmem oom --json | jq '.failures[] | {reason, name, needed_bytes_per_bank}'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return runOOM(&o, &changes, kept) },
	}
	o.source.RegisterRun(c)
	o.source.Owners = true
	flags.Limit(c, &o.n, listedFailures)
	c.Flags().StringArrayVar(&changes.without, "without", nil, "replay without what `LINE` allocates (may be repeated)")
	c.Flags().StringArrayVar(&changes.set, "set", nil, "replay a device opened with `NAME=SIZE` (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("without", cobra.NoFileCompletions)
	flags.Complete(c, "set", []string{replay.L1SmallSize + "=", replay.TraceRegionSize + "=", replay.WorkerL1Size + "="})
	flags.Takes(c, flags.Color, flags.JSON, flags.UTC)
	return c
}

// whatIf are changes of the recorded program that are replayed.
type whatIf struct{ without, set []string }

// change returns the changes for a replay, and the same in words; nil without any. missing returns an error for a line that
// allocates nothing; it is called after the replay.
func (w *whatIf) change() (change *replay.WhatIf, text string, missing func() error, err error) {
	if len(w.without)+len(w.set) == 0 {
		return nil, "", nil, nil
	}
	change = &replay.WhatIf{Sizes: make(map[string]uint64)}
	var words []string
	for _, one := range w.set {
		argument, text, _ := strings.Cut(one, "=")
		known := []string{replay.L1SmallSize, replay.TraceRegionSize, replay.WorkerL1Size}
		var size flags.Size
		if err := size.Set(text); err != nil || !slices.Contains(known, argument) {
			return nil, "", nil, fmt.Errorf("--set %s: give one of %s, and a size such as 64KiB: --set l1_small_size=64KiB", one, strings.Join(known, ", "))
		}
		change.Sizes[argument] = uint64(size)
		words = append(words, fmt.Sprintf("%s=%d", argument, size))
	}
	if len(words) > 0 {
		words = []string{"with " + strings.Join(words, ", ")}
	}
	seen := make([]bool, len(w.without))
	var lines []func(*event.Stack) bool
	for _, line := range w.without {
		if !isLine.MatchString(line) {
			return nil, "", nil, fmt.Errorf("--without %s: give a file and the number of a line: --without model.py:31", line)
		}
		lines = append(lines, name.AtLine(line))
	}
	if len(lines) > 0 {
		words = append(words, "without "+strings.Join(w.without, ", "))
		change.Without = func(s *event.Stack) (matches bool) {
			for i, at := range lines {
				if at(s) {
					seen[i], matches = true, true
				}
			}
			return matches
		}
	}
	text = strings.Join(words, ", ")
	return change, strings.ToUpper(text[:1]) + text[1:], func() error {
		if i := slices.Index(seen, false); i >= 0 {
			return fmt.Errorf("--without %s: no allocation there; `ttmem log FILE --kind alloc` lists them", w.without[i])
		}
		return nil
	}, nil
}

var isLine = regexp.MustCompile(`.:\d+$`)

func runOOM(o *viewOptions, changes *whatIf, kept string) error {
	if err := flags.CheckLimit(o.n); err != nil {
		return err
	}
	change, changeText, missing, err := changes.change()
	if err != nil {
		return err
	}
	o.source.StateOnly = len(o.source.PIDs) == 0
	s, err := o.failures(kept)
	if err != nil {
		return err
	}
	snap, w := s.Snapshot(), &s.Summary
	snap.TimeNs = s.NowNs
	if o.format.JSON {
		w.Notes = page.WithOthers(w.Notes, w.Others)
	}
	p := &oom.Page{Of: w.Of, Live: w.Live, Limit: o.n, PIDs: o.source.PIDs, Others: w.Others, Notes: w.Notes, Snapshot: snap, Clock: o.source.Clock(), UTC: o.utc}
	if o.source.File != "" && source.ReadOnce(o.source.File) == nil {
		p.File = o.source.File
	}
	p.Choose()
	if source.IsOwn(w.Of) {
		if err := source.CheckPIDs(p.PIDs, snap, w.Of); err != nil {
			return err
		}
		if p.Of = "in your processes on this host"; len(p.PIDs) > 0 {
			p.Of = "on this host"
		}
	}
	if len(p.Failures) == 0 {
		if err := o.source.Missing(); err != nil {
			return err
		}
	}
	if err := o.addHolders(p, s); err != nil {
		return err
	}
	p.WhatIf, p.WhatIfText = change, changeText
	if err := p.Prove(o.play(p.File)); err != nil {
		return err
	}
	switch {
	case change == nil:
	case p.File == "":
		return errors.New("--without and --set need a recording, which is read twice: `ttmem run -o FILE -- COMMAND` makes one")
	default:
		if err := missing(); err != nil {
			return err
		}
	}
	if err := output.Print(p, o.format, page.NewSupplement(o.source.Clock(), snap), "failures"); err != nil {
		return err
	}
	return w.Finish(page.Doubts(p.Losses(), "failures may be missing, and figures wrong"))
}

// play returns a function that plays all events of a recording; nil without one. A file that is damaged at its beginning
// has none, which is no reason to show nothing.
func (o *viewOptions) play(path string) func(handle func(*event.Event)) error {
	if path == "" {
		return nil
	}
	return func(handle func(*event.Event)) error {
		r := &source.Recording{Path: path, PIDs: o.source.PIDs, Whole: true}
		if _, err := r.Watch(handle); errors.Is(err, term.ErrInterrupted) {
			return err
		}
		return nil
	}
}

// addHolders adds who held the buffers when allocations failed: in a recording at that moment,
// otherwise of the buffers that are still live.
func (o *viewOptions) addHolders(p *oom.Page, now *source.State) error {
	if p.File == "" {
		owned := now.Owned()
		p.Holders = func(*memory.Failure) []memory.Buffer { return owned }
		return nil
	}
	recording := &source.Recording{Path: p.File, PIDs: o.source.PIDs}
	held := make(map[*memory.Failure][]memory.Buffer)
	for _, f := range p.Explained(listedFailures) {
		at := source.Moment{Kind: source.AtPoint, Point: memory.Point{TimeNs: f.TimeNs}}
		_, err := recording.StateAt(at, func(s *source.State, _ source.Regions) { held[f] = s.Owned() })
		if errors.Is(err, term.ErrInterrupted) {
			return err
		}
		// A file that is damaged before the failure has no holders of it, which is no reason to show nothing.
	}
	p.Holders = func(f *memory.Failure) []memory.Buffer { return held[f] }
	return nil
}

// failures returns the state with the failures: of the source that was chosen or, if none was and
// there is no failure on the host, of the newest recording in the folder kept.
func (o *viewOptions) failures(kept string) (*source.State, error) {
	src, newest := &o.source, ""
	if info, err := os.Stat(src.File); err == nil && info.IsDir() {
		if newest = record.NewestFailure(src.File); newest == "" {
			return nil, fmt.Errorf("%s has no recording of a failed allocation: name a folder of --crash-dir, or a file", src.File)
		}
		src.File = newest
		return src.Seen()
	}
	if src.File == "" && len(src.Command) == 0 && len(src.PIDs) == 0 && !src.SocketNamed {
		newest = record.NewestFailure(kept)
	}
	if newest != "" {
		client, err := service.Dial(src.Socket)
		if err != nil {
			src.File = newest
			return src.Seen()
		}
		client.Close()
	}
	s, err := src.Seen()
	if err == nil && newest != "" && s.Snapshot().FailureCount == 0 {
		src.File = newest
		return src.Seen()
	}
	return s, err
}
