package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/tracer/event"
)

// logOptions say which events are listed, and how.
type logOptions struct {
	source       sourceOptions
	devices      []int
	regions      []string
	kinds        []string
	notes        []string
	addresses    []string
	objects      []string
	buffers      []string
	grep         string
	rules        string
	since, until time.Duration
	n            int
	stacks, json bool
}

// logKinds are the kinds of events that can be listed.
var logKinds = []event.Kind{
	event.Alloc, event.Free, event.AllocFailed, event.CBAlloc, event.CBFree, event.KernelLoad, event.KernelUnload,
	event.DeviceOpen, event.DeviceClose, event.ProcessStart, event.ProcessExit, event.Lost, event.Mark,
}

// logRegions are the regions that events are of.
var logRegions = append(slices.Clone(shownRegions), event.Kernel)

func newLog() *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "log [FILE | -- COMMAND]",
		Short: "List what happened to an address, a buffer, a region or a process",
		Long: `Lists events in the order in which they happened: each with the time since the
first one, chips, kind, address, size on each chip, bytes of each bank and number of
banks, region and layout, the Buffer's pointer in the process, the process and a name:
the operation and the innermost line of the user's own code. What is freed is told with
where it was allocated and how long it lived. A line says where an address had another
size before, and begins with ! where something is wrong: a buffer that is freed twice or
was never seen, or that lies over one that is still there.

FILE is a recording, or a file of events. Without it the service of this host (ttmem
serve) is asked or, where none runs, root traces the processes himself; what happens is
listed until Ctrl-C. Views of other buffers, and buffers of a graph capture, have no
memory of their own and make no events: all that is listed owns its memory.`,
		Example: `  ttmem log model.ttmem --address 0x1c40        # who was there, and when
  ttmem log model.ttmem --buffer 1234 --stacks
  ttmem log model.ttmem --region L1 --kind alloc,free --since 2s --until 2.5s
  ttmem log model.ttmem --grep 'attention\.py:31' -n 20
  ttmem log model.ttmem --note double_free,overlap
  sudo ttmem log -p 4242                        # as it happens
  ttmem log model.ttmem --json | jq 'select(.note.lived_ns > 1e9)'`,
		RunE: func(c *cobra.Command, args []string) error { return runLog(c, &o, args) },
	}
	o.source.registerWatch(c)
	f := c.Flags()
	f.StringSliceVar(&o.addresses, "address", nil, "only what has the address `ADDR`, such as 0x1c40 (may be repeated)")
	f.StringSliceVar(&o.buffers, "buffer", nil, "only the buffer `ID` (may be repeated)")
	f.StringSliceVar(&o.objects, "object", nil, "only the Buffer at `POINTER` in its process (may be repeated)")
	f.IntSliceVar(&o.devices, "device", nil, "only the chip `N` (may be repeated)")
	f.StringSliceVar(&o.regions, "region", nil, "only the `REGION`: "+strings.Join(regionNames(logRegions), ", ")+" (may be repeated)")
	f.StringSliceVar(&o.kinds, "kind", nil, "only the `KIND`: "+strings.Join(kindNames(), ", ")+" (may be repeated)")
	f.StringSliceVar(&o.notes, "note", nil, "only where there is such a `NOTE`: "+strings.Join(noteNames, ", ")+" (may be repeated)")
	f.StringVar(&o.grep, "grep", "", "only where `REGEXP` matches the name, the component, a frame as FILE:LINE FUNCTION, or what the event says; (?i) ignores case")
	f.StringVar(&o.rules, "rules", "", "name components of the model by the rules in `FILE`")
	f.DurationVar(&o.since, "since", 0, "only from this `TIME` after the first event on, such as 2.5s")
	f.DurationVar(&o.until, "until", 0, "only up to this `TIME` after the first event")
	f.IntVarP(&o.n, "last", "n", 0, "of what is in FILE, or has happened before, list only the last `N` (0: all)")
	f.BoolVar(&o.stacks, "stacks", false, "show the whole call stack below each event")
	f.BoolVar(&o.json, "json", false, "print each as a line of JSON: the event record, with a note")
	fixed := func(flag string, values []string) {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	fixed("region", regionNames(logRegions))
	fixed("kind", kindNames())
	fixed("note", noteNames)
	for _, flag := range []string{"address", "buffer", "object", "device", "grep", "since", "until", "last"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = c.MarkFlagFilename("rules")
	return c
}

func regionNames(regions []event.Region) (names []string) {
	for _, r := range regions {
		names = append(names, r.String())
	}
	return names
}

func kindNames() (names []string) {
	for _, k := range logKinds {
		names = append(names, k.String())
	}
	return names
}

// check finds what is wrong with the flags before anything is read.
func (o *logOptions) check(c *cobra.Command) (*logFilter, error) {
	f := &logFilter{devices: o.devices, since: uint64(max(0, o.since)), until: uint64(max(0, o.until)), notes: o.notes}
	for _, text := range o.buffers {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--buffer %s: not a buffer's id: give its number, such as 1234, of the column \"buffer\"", text)
		}
		f.buffers = append(f.buffers, id)
	}
	var err error
	if f.addresses, err = parseAddresses("address", o.addresses); err != nil {
		return nil, err
	}
	if f.objects, err = parseAddresses("object", o.objects); err != nil {
		return nil, err
	}
	for _, name := range o.regions {
		i := slices.IndexFunc(logRegions, func(r event.Region) bool { return strings.EqualFold(r.String(), name) })
		if i < 0 {
			return nil, fmt.Errorf("--region %s: there are %s", name, strings.Join(regionNames(logRegions), ", "))
		}
		f.regions = append(f.regions, logRegions[i])
	}
	for _, name := range o.kinds {
		i := slices.Index(kindNames(), strings.ToLower(name))
		if i < 0 {
			return nil, fmt.Errorf("--kind %s: there are %s", name, strings.Join(kindNames(), ", "))
		}
		f.kinds = append(f.kinds, logKinds[i])
	}
	for _, name := range o.notes {
		if !slices.Contains(noteNames, name) {
			return nil, fmt.Errorf("--note %s: there are %s", name, strings.Join(noteNames, ", "))
		}
	}
	switch {
	case o.since < 0 || o.until < 0:
		return nil, errors.New("--since and --until are times after the first event: they must not be negative")
	case c.Flags().Changed("until") && o.until <= o.since:
		return nil, fmt.Errorf("--until %v is not after --since %v", o.until, o.since)
	case o.n < 0:
		return nil, fmt.Errorf("-n %d: must not be negative; 0 lists all", o.n)
	case o.json && o.stacks:
		return nil, errors.New("--json has the call stacks: leave out --stacks")
	}
	if o.grep != "" {
		if f.grep, err = regexp.Compile(o.grep); err != nil {
			return nil, fmt.Errorf("--grep: %w", err)
		}
	}
	return f, nil
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
	if err := o.source.checkWatch(c, args); err != nil {
		return err
	}
	filter, err := o.check(c)
	if err != nil {
		return err
	}
	rules, err := readRules(o.rules)
	if err != nil {
		return err
	}
	layout := listLayoutFor(os.Stdout)
	out := newLogOutput(os.Stdout, layout.width > 0 && o.source.file != "")
	l := newEventLog(o, filter, rules, layout, out)
	l.from = monotonicNow()
	w, err := l.watch(&o.source)
	l.end()
	if err := errors.Join(out.close(), err); err != nil {
		return firstError(err)
	}
	if w == nil {
		return nil
	}
	for _, note := range w.notes {
		warn(note)
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
// not read on after the time of --until.
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
	if errors.Is(err, errInterrupted) && ctx.Err() != nil {
		return &watched{of: o.file}, nil
	}
	return w, err
}

// summary says what a reader of the list cannot see in it.
func (l *eventLog) summary(w *watched) {
	switch {
	case l.listed > 0:
	case l.seen == 0:
		warn("nothing happened " + w.in())
	default:
		warn(fmt.Sprintf("none of the %s of %s is what the flags ask for%s", formatCount(l.seen, "event"), w.of, l.filter.hint(l)))
	}
	if n := l.history.Snapshot().LostEvents(); n > 0 {
		warn(fmt.Sprintf("events may be missing, and notes wrong: %s lost", formatCount(n, "event")))
	}
}
