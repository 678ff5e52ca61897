// Package diagnosis shows whether tracing works on a host, and what is known of libraries.
package diagnosis

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/doctor"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// A Page is the document of `ttmem doctor --json`.
type Page struct {
	V        int              `json:"v"`
	Features []kernel.Feature `json:"features"`
	// Chips are those on PCIe: a mock device and a simulator have none. Driver is the release of their kernel driver; "" if it is not loaded.
	Chips     []host.Chip          `json:"chips"`
	Driver    string               `json:"driver"`
	Libraries []*doctor.Inspection `json:"libraries"`
	// Processes are those that were named.
	Processes []*doctor.Process `json:"processes,omitempty"`
	// Uninspected is how many more libraries each user's processes map.
	Uninspected map[int]int `json:"uninspected,omitempty"`
	// OfHost is true if the page is about the host and the libraries that processes map, and Root
	// if the host could be checked with privileges.
	OfHost bool `json:"-"`
	Root   bool `json:"-"`
	// untried are the names of the features that could not be tried.
	untried []string
}

// New returns a page without libraries.
func New(features []kernel.Feature, ofHost, root bool) *Page {
	return &Page{
		V: 1, Features: features, Chips: []host.Chip{}, Libraries: []*doctor.Inspection{}, OfHost: ofHost, Root: root,
		untried: explainUntried(features, root),
	}
}

// Works reports whether tracing works on the host or, if the page is about given files or processes, with these. An odd
// library that some process maps says nothing about the host.
func (p *Page) Works() bool {
	if p.OfHost {
		return p.HostWorks()
	}
	return !slices.ContainsFunc(p.Libraries, func(l *doctor.Inspection) bool { return len(l.Missing) > 0 || l.Untraced != "" }) &&
		!slices.ContainsFunc(p.Processes, func(one *doctor.Process) bool { return one.Refused != "" || len(one.TTMetal) == 0 })
}

// HostWorks reports whether the host has what tracing needs.
func (p *Page) HostWorks() bool {
	return !slices.ContainsFunc(p.Features, func(f kernel.Feature) bool { return !f.OK })
}

// Document returns the JSON document.
func (p *Page) Document() any { return p }

// libraryExample is the path of a library that pip installs.
const libraryExample = "…/site-packages/ttnn/build/lib/libtt_metal.so"

// explainUntried writes why features could not be tried, and returns their names.
func explainUntried(features []kernel.Feature, root bool) (untried []string) {
	why := "not tried: needs root"
	if root {
		why = "not tried: root lacks CAP_BPF, CAP_PERFMON or CAP_SYS_ADMIN here (give a container --privileged)"
	}
	for i := range features {
		if f := &features[i]; f.Untried {
			f.Detail = why
			untried = append(untried, f.Name)
		}
	}
	return untried
}

// writeHost writes the features of the host, those that could not be tried first.
func (p *Page) writeHost(w *bufio.Writer, layout page.Layout) {
	if !p.Root {
		fmt.Fprintln(w, "Without root, the libraries of processes are not checked.")
		if len(p.untried) > 0 {
			fmt.Fprintf(w, "These kernel features need root: %s.\n", strings.Join(p.untried, ", "))
		}
		fmt.Fprint(w, "`sudo ttmem doctor` checks everything.\n\n")
	}
	fmt.Fprintln(w, "Host")
	for _, f := range p.Features {
		mark := "ok"
		switch {
		case slices.Contains(p.untried, f.Name):
			mark = "?"
		case f.Busy:
			mark = "BUSY"
		case !f.OK:
			mark = "MISSING"
		case f.Instead != "":
			mark = "slower"
		}
		writeLine(w, layout, fmt.Sprintf("  %-7s  %-22s  ", mark, f.Name), f.Detail)
		if f.Instead != "" {
			writeLine(w, layout, page.Blank(35), "instead: "+f.Instead)
		}
	}
	fmt.Fprintf(w, "\n%s\n\n", p.Verdict())
}

// writeChips writes the chips on PCIe, which mock devices and simulators have not.
func (p *Page) writeChips(w *bufio.Writer, layout page.Layout) {
	if len(p.Chips) == 0 && p.Driver == "" {
		fmt.Fprint(w, "No card: Tenstorrent's kernel driver is not loaded.\n\n")
		return
	}
	fmt.Fprintf(w, "Chips on PCIe, with driver %s\n", cmp.Or(event.Printable(p.Driver), "not known"))
	for _, c := range p.Chips {
		writeLine(w, layout, fmt.Sprintf("  %-7d  %-22s  ", c.ID, cmp.Or(event.Printable(c.Board), "board not known")),
			fmt.Sprintf("%s, firmware %s", cmp.Or(c.PCI, "address not known"), cmp.Or(c.Firmware, "not known")))
	}
	fmt.Fprintln(w)
}

// mappedBy names the processes that map a library, with what they run on.
func mappedBy(l *doctor.Inspection) string {
	var list []string
	for i, pid := range l.Processes {
		one := fmt.Sprint(pid)
		if i < len(l.RunsOn) && l.RunsOn[i] != host.OnNothingKnown {
			one += " (" + string(l.RunsOn[i]) + ")"
		}
		list = append(list, one)
	}
	return strings.Join(list, ", ")
}

// Verdict returns a line that says whether tracing works on this host.
func (p *Page) Verdict() string {
	var missing, late []string
	for _, f := range p.Features {
		switch {
		case f.OK || slices.Contains(p.untried, f.Name):
		case f.Busy:
			late = append(late, f.Name)
		default:
			missing = append(missing, f.Name)
		}
	}
	switch {
	case len(missing) > 0:
		return "Tracing does not work here: " + strings.Join(missing, ", ") + "."
	case len(late) > 0:
		return "This host is too busy to check whether tracing works: no result in time for " + strings.Join(late, ", ") + ". Run `ttmem doctor` again."
	case len(p.untried) > 0:
		return "ttmem could not check whether tracing works here."
	}
	return "Tracing works here."
}

// WriteText writes the page.
func (p *Page) WriteText(to io.Writer, layout page.Layout) error {
	w := bufio.NewWriter(to)
	if p.OfHost {
		p.writeHost(w, layout)
		p.writeChips(w, layout)
	}
	for _, one := range p.Processes {
		p.writeProcess(w, layout, one)
	}
	switch {
	case !p.OfHost || len(p.Libraries) > 0:
	case !p.Root:
		fmt.Fprintln(w, "`ttmem doctor LIBRARY` checks a library without root:\n  "+libraryExample)
	default:
		fmt.Fprintln(w, "No process maps a tt-metal library now. `ttmem doctor LIBRARY` checks a file:\n  "+libraryExample)
	}
	for i, l := range p.Libraries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeLibrary(w, layout, l)
	}
	for _, user := range slices.Sorted(maps.Keys(p.Uninspected)) {
		fmt.Fprintf(w, "\nProcesses of user %d map %s, too many to be checked.\n", user, page.Count(uint64(p.Uninspected[user]), "more library"))
	}
	return w.Flush()
}

// writeLine writes a text beside columns, cleaned, because libraries belong to any user.
func writeLine(w *bufio.Writer, layout page.Layout, columns, text string) {
	if text == "" {
		fmt.Fprintln(w, strings.TrimRight(columns, " "))
		return
	}
	layout.Beside(w, columns, page.NoStyle, event.Printable(text))
}

// listedFields is the number of fields whose names the text has, and listedMissing that of missing parts of a library of
// which nothing is traced.
const listedFields, listedMissing = 3, 8

func writeLibrary(w *bufio.Writer, layout page.Layout, l *doctor.Inspection) {
	line := func(columns, format string, args ...any) {
		writeLine(w, layout, page.Left(columns, 12), fmt.Sprintf(format, args...))
	}
	path := l.Path
	if l.Deleted {
		path += " (deleted)"
	}
	writeLine(w, layout, "", path)
	line("  release", "%s", cmp.Or(l.Release, "not known"))
	line("  build-id", "%s", l.BuildID)
	if l.Owner != nil {
		line("  owner", "user %d", *l.Owner)
	}
	if len(l.Processes) > 0 {
		line("  mapped by", "%s", mappedBy(l))
	}
	if l.Untraced != "" {
		line("  UNTRACED", "%s", l.Untraced)
	}
	if len(l.Fields) == 0 {
		return
	}
	line("  fields", "%d found in the machine code", len(l.Fields))
	if n := len(l.Single); n > listedFields {
		line("", "%d of them confirmed by one function only (single_source in --json)", n)
	} else if n > 0 {
		line("", "confirmed by one function only: %s", strings.Join(l.Single, ", "))
	}
	line("  probes", "%d found", len(l.Probes))
	if len(l.Slow) > 0 {
		line("", "on single-stepped instructions, slower: %s", strings.Join(l.Slow, ", "))
	}
	if len(l.Missing) == 0 {
		line("  missing", "nothing")
	}
	for i, m := range l.Missing {
		if l.Untraced != "" && i == listedMissing {
			line("", "and %d more (missing in --json)", len(l.Missing)-i)
			break
		}
		line("  MISSING", "%s (%s): %s", m.Name, m.Why, m.Costs)
	}
}
