package alloc

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Grouping is a value of --by. It gives the groups of a row: one, or one for each of its chips.
type Grouping struct {
	name string
	Keys func(n *Namer, a *Row) []string
}

var groupings = []Grouping{
	{"stack", func(n *Namer, a *Row) []string { return []string{n.Title(a, " · ")} }},
	{"op", func(n *Namer, a *Row) []string {
		return []string{a.orUnknown(a.Name.Op, "(unknown operation)")}
	}},
	{"line", func(n *Namer, a *Row) []string {
		return []string{a.orUnknown(a.Name.Call.String(), "(unknown line)")}
	}},
	{"file", func(n *Namer, a *Row) []string {
		return []string{a.orUnknown(a.Name.Call.File, "(unknown file)")}
	}},
	{"owner", func(n *Namer, a *Row) []string {
		return []string{cmp.Or(page.Clean(name.FoldOwner(a.Owner.Path)), "(owner not known)")}
	}},
	{"component", func(n *Namer, a *Row) []string {
		return []string{a.orUnknown(a.Component, "(no component)")}
	}},
	{"class", func(n *Namer, a *Row) []string {
		if int(a.Region) >= event.BankedRegions {
			return []string{strings.ReplaceAll(a.Layout, "_", " ")}
		}
		return []string{cmp.Or(a.Class().String(), name.UnknownClass)}
	}},
	{"type", func(n *Namer, a *Row) []string { return []string{a.Region.String() + " " + a.Layout} }},
	{"size", func(_ *Namer, a *Row) []string { return []string{sizes(a.EachBytes())} }},
	{"region", func(_ *Namer, a *Row) []string { return []string{a.Region.String()} }},
	{"chip", func(_ *Namer, a *Row) []string {
		if len(a.Devices) == 0 {
			return []string{"unknown chip"}
		}
		return page.Each(a.Devices, func(id int) string { return fmt.Sprintf("chip %d", id) })
	}},
	{"process", func(n *Namer, a *Row) []string { return []string{n.process(a.PID)} }},
}

// sizes are the powers of two between which a size is: "32 KiB to 64 KiB".
func sizes(n uint64) string {
	from := uint64(1) << (bits.Len64(n|1) - 1)
	if n == 0 {
		return page.Bytes(0)
	}
	return strings.ReplaceAll(page.Bytes(from)+" to "+page.Bytes(2*from), ".0", "")
}

// GroupingNames are the values of --by.
func GroupingNames() []string {
	return page.Each(groupings, func(g Grouping) string { return g.name })
}

// orUnknown returns a text from a row's call stack, or a replacement if there is none.
func (a *Row) orUnknown(text, unknown string) string {
	if text == "" && a.BeforeAttach {
		return Unknown(nil, true)
	}
	return cmp.Or(page.Clean(text), unknown)
}

// GroupingOf is the grouping of a value of --by.
func GroupingOf(by string) Grouping {
	return groupings[slices.IndexFunc(groupings, func(g Grouping) bool { return g.name == by })]
}

// process is the id and name of a process.
func (n *Namer) process(pid int) string {
	if p := n.find(pid); p != nil {
		return n.Users().PID(pid) + " " + page.ProcessName(p)
	}
	return n.Users().PID(pid)
}

// Users are the users of the processes.
func (n *Namer) Users() page.Users {
	if n.users == nil {
		n.users = page.UsersOf(n.Snap)
	}
	return n.users
}

// ProcessName is the name of a process, also of one that has ended.
func (n *Namer) ProcessName(pid int) string {
	if p := n.find(pid); p != nil && page.ProcessName(p) != "" {
		return page.ProcessName(p)
	}
	return fmt.Sprintf("PID %d", pid)
}

// Host is the memory of a process on the host; zero if it is not known.
func (n *Namer) Host(pid int) (m memory.HostMemory) {
	if p := n.find(pid); p != nil && p.Host != nil {
		m = *p.Host
	}
	return m
}

// find returns the process with an id: the live one, else the first one with that id.
func (n *Namer) find(pid int) (found *memory.Process) {
	for i := range n.Snap.Processes {
		if p := &n.Snap.Processes[i]; p.PID == pid && (found == nil || p.Exit == nil) {
			found = p
		}
	}
	return found
}
