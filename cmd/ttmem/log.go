package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/eventlog"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// logOptions select the listed events, and how to list them.
type logOptions struct {
	viewOptions
	kinds     []string
	addresses []string
	buffers   []string
	stacks    bool
	allFrames bool
	// losses are those of a recording that was not read to its end.
	losses *memory.AllLosses
}

func newLog() *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "log [FILE | -- COMMAND]",
		Short: "List what happened to an address, a buffer, a region or a process",
		Long: `Lists events in order of time: allocations, frees, failures and others, each with its address,
size, process and name.

FILE is a recording; COMMAND is run and traced to its end. Without either, running processes are
watched until Ctrl-C. docs/log.md explains the columns, kinds and notes.`,
		Example: `  ttmem log model.ttmem --address 0x1c40
  ttmem log model.ttmem --buffer 1234 --stacks
  ttmem log model.ttmem --region L1 --kind alloc,free --from 2s --to 2.5s
  ttmem log model.ttmem --from warm --within forward --grep 'attention\.py:31'
  ttmem log -p 4242
  ttmem log model.ttmem --json | jq 'select(.note.lived_ns > 1e9)'`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return runLog(&o) },
	}
	o.source.RegisterRun(c)
	f := c.Flags()
	f.StringSliceVar(&o.addresses, "address", nil, "only `ADDRESS`, such as 0x1c40 (may be repeated)")
	f.StringSliceVar(&o.buffers, "buffer", nil, "only buffer `ID`, or object 0x... (may be repeated)")
	f.StringSliceVar(&o.kinds, "kind", nil, "only `KIND`, such as alloc or reuse (may be repeated)")
	for _, flag := range []string{"address", "buffer"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	flags.Complete(c, "kind", slices.Concat(eventlog.KindNames(), eventlog.NoteNames))
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(eventlog.Regions))
	flags.Grep(c, &o.grep)
	o.span.Register(c, "end")
	flags.Limit(c, &o.n, 0)
	f.BoolVar(&o.stacks, "stacks", false, "show the call stack of each event")
	flags.AllFrames(c, &o.allFrames)
	flags.Takes(c, flags.Color, flags.JSON, flags.Rules, flags.UTC)
	return c
}

// check checks the flags before anything is read.
func (o *logOptions) check() (*eventlog.Filter, *name.Rules, error) {
	of, rules, err := o.viewOptions.check(eventlog.Regions)
	if err != nil {
		return nil, nil, err
	}
	f := &eventlog.Filter{Devices: of.Devices, Regions: of.Regions, Grep: of.Grep, Frequent: o.format.JSON}
	for _, text := range o.buffers {
		id, err := strconv.ParseUint(text, 10, 64)
		if err == nil {
			f.Buffers = append(f.Buffers, id)
			continue
		}
		object, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("--buffer %s: give an id such as 1234, or the address of a Buffer object such as 0x7f00dead1000", text)
		}
		f.Objects = append(f.Objects, object)
	}
	for _, text := range o.addresses { // in hexadecimal or, without 0x, in decimal
		address, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("--address %s: not an address: give one such as 0x1c40", text)
		}
		f.Addresses = append(f.Addresses, address)
	}
	for _, name := range o.kinds {
		name = strings.ToLower(name)
		if i := slices.Index(eventlog.KindNames(), name); i >= 0 {
			f.Kinds = append(f.Kinds, eventlog.Kinds[i])
		} else if slices.Contains(eventlog.NoteNames, name) {
			f.Notes = append(f.Notes, name)
		} else {
			return nil, nil, fmt.Errorf("--kind %s: choose %s, or a note: %s", name, strings.Join(eventlog.KindNames(), ", "), strings.Join(eventlog.NoteNames, ", "))
		}
	}
	if o.format.JSON && o.stacks {
		return nil, nil, errors.New("--json has the call stacks: leave out --stacks")
	}
	if o.allFrames && !o.stacks {
		return nil, nil, errors.New("--all-frames needs --stacks: give both")
	}
	return f, rules, nil
}

func runLog(o *logOptions) error {
	filter, rules, err := o.check()
	if err != nil {
		return err
	}
	if filter.Times, err = o.times((&alloc.Filter{Devices: filter.Devices, Regions: filter.Regions}).SelectsPeak); err != nil {
		return err
	}
	layout := o.format.LayoutFor(os.Stdout)
	out := output.NewLines(os.Stdout, term.IsTerminal(os.Stdout) && o.source.File != "")
	l := eventlog.New(o.listed(), filter, rules, layout, out.Write)
	w, err := o.watch(l)
	l.End()
	if err := errors.Join(out.Close(), err); err != nil {
		return output.FirstError(err)
	}
	if w == nil {
		return nil
	}
	for _, note := range w.Notes {
		term.Warn(note)
	}
	if l.Listed == 0 {
		if err := o.source.Missing(); err != nil {
			return err
		}
	}
	o.summarize(l, w)
	return w.Status()
}

func (o *logOptions) listed() eventlog.Options {
	list := eventlog.Options{Stacks: o.stacks, AllFrames: o.allFrames, JSON: o.format.JSON, Limit: o.n, Clock: o.source.Clock(), UTC: o.utc}
	if o.source.File == "" && len(o.source.Command) == 0 {
		list.LiveNs = host.Now()
	}
	return list
}

// laterEvents is how late an event may come after later ones, in ns. The tracer delays events by
// 10 ms to order them; an event of a thread that was stopped comes later.
const laterEvents = 1e9

// watch lists events up to the end. It reads a file only up to --to.
func (o *logOptions) watch(l *eventlog.Log) (*source.Summary, error) {
	until := l.Filter.Until()
	if o.source.File == "" || until > math.MaxUint64-laterEvents {
		return o.source.Watch(o.source.Clocked(l.SetClock, l.Handle))
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.source.Ctx = ctx
	w, err := o.source.Watch(o.source.Clocked(l.SetClock, func(e *event.Event) {
		if l.Handle(e); l.Last-l.Begin > until+laterEvents {
			stop()
		}
	}))
	if errors.Is(err, term.ErrInterrupted) && ctx.Err() != nil {
		w = &source.Summary{Of: o.source.File}
		var losses memory.AllLosses
		losses, err = source.LossesAt(o.source.File, o.source.PIDs, l.State())
		o.losses = &losses
	}
	return w, err
}

// summarize warns about an empty list and lost events.
func (o *logOptions) summarize(l *eventlog.Log, w *source.Summary) {
	switch {
	case l.Listed > 0:
	case l.Seen == 0:
		term.Warn("nothing happened " + w.In())
	default:
		term.Warn(fmt.Sprintf("none of the %s in %s matches%s", page.Count(l.Seen, "event"), w.Of, l.Hint()))
	}
	losses := l.State().Totals().Losses(false, nil)
	if o.losses != nil {
		losses = *o.losses
	}
	for _, doubt := range page.Doubts(losses, "events may be missing, and notes wrong") {
		term.Warn(doubt)
	}
}
