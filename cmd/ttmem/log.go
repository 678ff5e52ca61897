package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// logOptions say which events are listed, and how.
type logOptions struct {
	source       sourceOptions
	devices      []int
	regions      []string
	kinds        []string
	addresses    []string
	buffers      []string
	grep         string
	rules        string
	from, to     string
	n            int
	stacks, json bool
}

// logKinds are the kinds of events that can be listed.
var logKinds = []event.Kind{
	event.Alloc, event.Free, event.AllocFailed, event.CBAlloc, event.CBFree, event.KernelLoad, event.KernelUnload,
	event.DeviceOpen, event.DeviceClose, event.ProcessStart, event.ProcessExit, event.Lost, event.Mark,
}

// logRegions are the regions that events are of.
var logRegions = append(slices.Clone(alloc.Regions), event.Kernel)

func newLog() *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "log [FILE | -- COMMAND]",
		Short: "List what happened to an address, a buffer, a region or a process",
		Long: `Lists events in order of time: allocations, frees, failures and others, each with its address,
size, process and name.

FILE is a recording. Without it COMMAND is run and traced, or what runs already is watched
until Ctrl-C. docs/log.md explains the columns, the notes of a line, and what is no event.`,
		Example: `  ttmem log model.ttmem --address 0x1c40
  ttmem log model.ttmem --buffer 1234 --stacks
  ttmem log model.ttmem --region L1 --kind alloc,free --from 2s --to 2.5s
  ttmem log model.ttmem --from warm --grep 'attention\.py:31' -n 20
  ttmem log model.ttmem --kind double_free,overlap
  sudo ttmem log -p 4242
  ttmem log model.ttmem --json | jq 'select(.note.lived_ns > 1e9)'`,
		RunE: func(c *cobra.Command, args []string) error { return runLog(c, &o, args) },
	}
	o.source.register(c)
	f := c.Flags()
	f.StringSliceVar(&o.addresses, "address", nil, "only `ADDRESS` in the banks, such as 0x1c40 (may be repeated)")
	f.StringSliceVar(&o.buffers, "buffer", nil, "only the buffer `ID`, or the Buffer object at 0x... (may be repeated)")
	f.StringSliceVar(&o.kinds, "kind", nil, "only events of `KIND`, or with this note (may be repeated): "+
		strings.Join(slices.Concat(kindNames(), noteNames), ", "))
	for _, flag := range []string{"address", "buffer"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	flags.Complete(c, "kind", slices.Concat(kindNames(), noteNames))
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, alloc.RegionNames(logRegions))
	flags.Grep(c, &o.grep)
	flags.From(c, &o.from, "begin")
	flags.To(c, &o.to, "", "end")
	flags.Limit(c, &o.n, 0)
	f.BoolVar(&o.stacks, "stacks", false, "show the whole call stack of each event")
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

func kindNames() (names []string) {
	for _, k := range logKinds {
		names = append(names, k.String())
	}
	return names
}

// check finds what is wrong with the flags before anything is read.
func (o *logOptions) check() (*logFilter, error) {
	f := &logFilter{devices: o.devices}
	for _, text := range o.buffers {
		id, err := strconv.ParseUint(text, 10, 64)
		if err == nil {
			f.buffers = append(f.buffers, id)
			continue
		}
		object, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("--buffer %s: give an id such as 1234, or the address of a Buffer object such as 0x7f00dead1000", text)
		}
		f.objects = append(f.objects, object)
	}
	var err error
	if f.addresses, err = parseAddresses("address", o.addresses); err != nil {
		return nil, err
	}
	for _, name := range o.regions {
		i := slices.IndexFunc(logRegions, func(r event.Region) bool { return strings.EqualFold(r.String(), name) })
		if i < 0 {
			return nil, fmt.Errorf("--region %s: choose %s", name, strings.Join(alloc.RegionNames(logRegions), ", "))
		}
		f.regions = append(f.regions, logRegions[i])
	}
	for _, name := range o.kinds {
		name = strings.ToLower(name)
		if i := slices.Index(kindNames(), name); i >= 0 {
			f.kinds = append(f.kinds, logKinds[i])
		} else if slices.Contains(noteNames, name) {
			f.notes = append(f.notes, name)
		} else {
			return nil, fmt.Errorf("--kind %s: choose %s, or a note: %s", name, strings.Join(kindNames(), ", "), strings.Join(noteNames, ", "))
		}
	}
	switch {
	case o.n < 0:
		return nil, fmt.Errorf("-n %d: must not be negative; 0 lists all", o.n)
	case o.json && o.stacks:
		return nil, errors.New("--json has the call stacks: leave out --stacks")
	}
	f.grep, err = flags.CompileGrep(o.grep)
	return f, err
}

// parseAddresses reads addresses, in hexadecimal or, without 0x, in decimal.
func parseAddresses(flag string, texts []string) (list []uint64, err error) {
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("--%s %s: not an address: give one such as 0x1c40", flag, text)
		}
		list = append(list, n)
	}
	return list, nil
}

func runLog(c *cobra.Command, o *logOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	if err := o.source.checkWatch(c, args); err != nil {
		return err
	}
	filter, err := o.check()
	if err != nil {
		return err
	}
	if filter.since, filter.until, err = o.span(); err != nil {
		return err
	}
	rules, err := flags.ReadRules(o.rules)
	if err != nil {
		return err
	}
	layout := term.LayoutFor(os.Stdout)
	out := output.NewLines(os.Stdout, layout.Width > 0 && o.source.file != "")
	l := newEventLog(o, filter, rules, layout, out)
	l.from = monotonicNow()
	w, err := l.watch(&o.source)
	l.end()
	if err := errors.Join(out.Close(), err); err != nil {
		return output.FirstError(err)
	}
	if w == nil {
		return nil
	}
	for _, note := range w.notes {
		term.Warn(note)
	}
	if l.listed == 0 {
		if err := o.source.missing(); err != nil {
			return err
		}
	}
	l.summary(w)
	return w.status()
}

// laterEvents is how long after a time, in ns, events of before that may still come. The
// tracer holds events back for 10 ms to put them in order; one whose thread was stopped
// while it told of it comes later.
const laterEvents = 1e9

// watch handles events up to the end, or up to where nothing more is asked for: a file is
// not read on after the moment of --to.
func (l *eventLog) watch(o *sourceOptions) (*watched, error) {
	if o.file == "" || l.filter.until == 0 {
		return o.watch(l.handle, func() {})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.ctx = ctx
	w, err := o.watch(func(e *event.Event) {
		if l.handle(e); l.last-l.begin > l.filter.until+laterEvents {
			stop()
		}
	}, func() {})
	if errors.Is(err, term.ErrInterrupted) && ctx.Err() != nil {
		return &watched{of: o.file}, nil
	}
	return w, err
}

// summary says what a reader of the list cannot see in it.
func (l *eventLog) summary(w *watched) {
	switch {
	case l.listed > 0:
	case l.seen == 0:
		term.Warn("nothing happened " + w.in())
	default:
		term.Warn(fmt.Sprintf("none of the %s of %s is what the flags ask for%s", page.Count(l.seen, "event"), w.of, l.filter.hint(l)))
	}
	if n := l.history.Snapshot().LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("events may be missing, and notes wrong: %s lost", page.Count(n, "event")))
	}
}
