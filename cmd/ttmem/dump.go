package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// dumpOptions say what of a state is listed, and how.
type dumpOptions struct {
	source  sourceOptions
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
		RunE: func(c *cobra.Command, args []string) error { return dump(c, &o, args) },
	}
	o.source.register(c)
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
	for _, region := range shownRegions {
		names = append(names, region.String())
	}
	return names
}

// shownRegions are the regions in the order in which they are shown.
var shownRegions = []event.Region{event.DRAM, event.L1, event.CB, event.L1Small, event.Trace, event.SystemMemory}

// dumpFilter is what the flags let through, checked.
type dumpFilter struct {
	devices, pids []int
	regions       []event.Region
	grep          *regexp.Regexp
}

// check finds what is wrong with the flags before anything is read.
func (o *dumpOptions) check() (filter dumpFilter, rules *name.Rules, err error) {
	filter.devices, filter.pids = o.devices, o.source.pids
	for _, name := range o.regions {
		i := slices.IndexFunc(shownRegions, func(r event.Region) bool { return strings.EqualFold(r.String(), name) })
		if i < 0 {
			return filter, nil, fmt.Errorf("--region %s: choose %s", name, strings.Join(dumpRegions(), ", "))
		}
		filter.regions = append(filter.regions, shownRegions[i])
	}
	switch {
	case o.n < 0:
		return filter, nil, fmt.Errorf("-n %d: must not be negative; 0 lists all", o.n)
	case o.by != "":
		if err := flags.CheckBy(o.by); err != nil {
			return filter, nil, err
		}
	}
	if filter.grep, err = flags.CompileGrep(o.grep); err != nil {
		return filter, nil, err
	}
	rules, err = flags.ReadRules(o.rules)
	return filter, rules, err
}

func dump(c *cobra.Command, o *dumpOptions, args []string) error {
	o.json, o.rules = flags.WantsJSON(c), flags.RulesFile(c)
	if err := o.source.check(c, args); err != nil {
		return err
	}
	filter, rules, err := o.check()
	if err != nil {
		return err
	}
	at, err := parseMoment("at", o.at)
	if err != nil {
		return err
	}
	at.last = true
	switch {
	case at.left():
		return errLeft
	case o.source.file == "" && !at.atEnd():
		return errors.New("--at is a moment of a recording: leave it out to list what is live now")
	}
	l, err := o.list(at, filter, rules)
	if err != nil {
		return err
	}
	layout := term.LayoutFor(os.Stdout)
	if !at.atEnd() && !o.json && l.all > 0 {
		for _, line := range layout.Lines(page.Clean(l.of), 0) {
			fmt.Println(layout.Paint(page.Dim, line))
		}
	}
	if o.json {
		l.notes = page.WithOthers(l.notes, l.others)
	}
	if err := l.write(os.Stdout, o, layout); err != nil {
		return fmt.Errorf("writing the list: %w", output.Pathless(err))
	}
	for _, note := range l.notes {
		term.Warn(note)
	}
	if n := l.snap.LostEvents(); n > 0 {
		term.Warn(fmt.Sprintf("the list may lack buffers, or have too many: %s lost", page.Count(n, "event")))
	}
	if l.failed {
		return term.ExitStatus(1)
	}
	return nil
}

// write writes the list as the options ask for.
func (l *listing) write(w io.Writer, o *dumpOptions, layout page.Layout) error {
	l.sort()
	if o.by == "" {
		l.cut(o.n)
		if o.json {
			return l.writeJSON(w)
		}
		return l.writeText(w, layout)
	}
	g := l.group(o.by, o.n)
	if o.json {
		return g.writeJSON(w)
	}
	return g.writeText(w, layout)
}
