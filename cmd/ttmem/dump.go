package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/dump"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// dumpOptions say what of a state is listed, and how.
type dumpOptions struct {
	source  source.Options
	at      string
	by      string
	devices []int
	regions []string
	grep    string
	rules   string
	n       int
	json    bool
}

func newDump() *cobra.Command {
	var o dumpOptions
	c := &cobra.Command{
		Use:   "dump [FILE]",
		Short: "List what is allocated, with the lines that allocated it",
		Long: `Lists live buffers, and the circular and dataflow buffers of programs, largest first, with the
lines that allocated them.

FILE is a recording, at its end or --at another moment (docs/diff.md). Without it the host's
service (ttmem serve) is asked, or root reads the memory of the processes.
docs/dump.md explains the columns, and rules for components.`,
		Example: `  ttmem dump                             what ttmem serve sees
  sudo ttmem dump -p 4242
  ttmem dump model.ttmem --at peak --by op
  ttmem dump model.ttmem --chip 0 --region L1
  ttmem dump --by component --rules model.rules
  ttmem dump --grep 'attention\.py:\d+' -n 20
  ttmem dump --json | jq '.buffers[] | select(.size_bytes > 1e6) | .name'`,
		RunE: func(c *cobra.Command, args []string) error { return runDump(c, &o, args) },
	}
	o.source.Register(c)
	flags.At(c, &o.at, "end")
	flags.By(c, &o.by, "")
	flags.Chips(c, &o.devices)
	flags.Regions(c, &o.regions, dumpRegions())
	flags.Grep(c, &o.grep)
	flags.Limit(c, &o.n, 0)
	flags.Takes(c, flags.JSON, flags.Rules)
	return c
}

// dumpRegions are the regions that something can be listed of.
func dumpRegions() (names []string) {
	for _, region := range alloc.Regions {
		names = append(names, region.String())
	}
	return names
}

// check finds what is wrong with the flags before anything is read.
func (o *dumpOptions) check() (filter alloc.Filter, rules *name.Rules, err error) {
	filter.Devices, filter.PIDs = o.devices, o.source.PIDs
	for _, name := range o.regions {
		i := slices.IndexFunc(alloc.Regions, func(r event.Region) bool { return strings.EqualFold(r.String(), name) })
		if i < 0 {
			return filter, nil, fmt.Errorf("--region %s: choose %s", name, strings.Join(dumpRegions(), ", "))
		}
		filter.Regions = append(filter.Regions, alloc.Regions[i])
	}
	switch {
	case o.n < 0:
		return filter, nil, fmt.Errorf("-n %d: must not be negative; 0 lists all", o.n)
	case o.by != "":
		if err := flags.CheckBy(o.by); err != nil {
			return filter, nil, err
		}
	}
	if filter.Grep, err = flags.CompileGrep(o.grep); err != nil {
		return filter, nil, err
	}
	rules, err = flags.ReadRules(o.rules)
	return filter, rules, err
}

func runDump(c *cobra.Command, o *dumpOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	if err := o.source.Check(c, args); err != nil {
		return err
	}
	filter, rules, err := o.check()
	if err != nil {
		return err
	}
	at, err := source.ParseMoment("at", o.at)
	if err != nil {
		return err
	}
	at.Last = true
	switch {
	case at.Kind == source.Unfreed:
		return source.ErrUnfreed
	case o.source.File == "" && !at.AtEnd():
		return errors.New("--at is a moment of a recording: leave it out to list what is live now")
	}
	l, err := o.list(at, filter, rules)
	if err != nil {
		return err
	}
	if !at.AtEnd() && !o.json && l.All > 0 {
		layout := term.LayoutFor(os.Stdout)
		for _, line := range layout.Lines(page.Clean(l.Of), 0) {
			fmt.Println(layout.Paint(page.Dim, line))
		}
	}
	if o.json {
		l.Notes = page.WithOthers(l.Notes, l.Others)
	}
	if err := printView(o.view(l), o.json, "list"); err != nil {
		return err
	}
	for _, note := range l.Notes {
		term.Warn(note)
	}
	if n := l.Snap.LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("the list may lack buffers, or have too many: %s lost", page.Count(n, "event")))
	}
	if l.Failed {
		return term.ExitStatus(1)
	}
	return nil
}

// view is the list, or its groups, as the flags say.
func (o *dumpOptions) view(l *dump.List) view {
	l.Sort()
	if o.by == "" {
		l.Cut(o.n)
		return l
	}
	return l.Group(o.by, o.n)
}

// newListing lists what is live.
func newListing(p *source.State, filter alloc.Filter, rules *name.Rules) (*dump.List, error) {
	snap := p.Snapshot()
	if err := checkLive(snap, &filter, p.Of); err != nil {
		return nil, err
	}
	l := dump.New(p.State, p.NowNs, alloc.Namer{Snap: snap, Rules: rules, Filter: filter})
	l.Of, l.Others, l.Notes, l.Failed = p.Of, p.Others, p.Notes, p.Failed
	return l, nil
}

// checkLive is an error if a selected chip or process does not exist.
func checkLive(snap *aggregate.Snapshot, filter *alloc.Filter, of string) error {
	var pids []int
	for i := range snap.Processes {
		if snap.Processes[i].Exit == nil {
			pids = append(pids, snap.Processes[i].PID)
		}
	}
	if err := source.CheckChips(filter.Devices, snap, of); err != nil {
		return err
	}
	for _, pid := range filter.PIDs {
		ended := func(p aggregate.Process) bool { return p.PID == pid && p.Exit != nil }
		switch {
		case !slices.Contains(pids, pid) && slices.ContainsFunc(snap.Processes, ended):
			return fmt.Errorf("-p %d: the process has ended, and holds nothing %s; `ttmem report … -p %d` shows what it had", pid, of, pid)
		case len(pids) == 0:
			return fmt.Errorf("-p %d: no process is running %s", pid, of)
		case !slices.Contains(pids, pid):
			return fmt.Errorf("-p %d: not running %s; available: PID %s", pid, of, strings.Trim(fmt.Sprint(pids), "[]"))
		}
	}
	return nil
}
