package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/doctor"
	"ttmem/tracer/event"
	"ttmem/tracer/kernel"
)

// diagnosis is the document of `ttmem doctor --json`.
type diagnosis struct {
	V         int                  `json:"v"`
	Features  []kernel.Feature     `json:"features"`
	Libraries []*doctor.Inspection `json:"libraries"`
	// untried are the names of the features that could not be tried.
	untried []string
}

// libraryExample is the path of a library that pip installs.
const libraryExample = "…/site-packages/ttnn/build/lib/libtt_metal.so"

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [LIBRARY]…",
		Short: "Check whether tracing works on this host",
		Long: `Checks whether tracing works on this host: loads the eBPF programs, traces a small program of its
own, and compares the events and call stacks with its calls. Then it reads the tt-metal libraries
that processes map, or each LIBRARY.

"slower" marks a kernel feature that is missing and that ttmem replaces. The exit status is 0
if tracing works.`,
		Example: `  ttmem doctor
  ttmem doctor venv/lib/python3.10/site-packages/ttnn/build/lib/libtt_metal.so
  ttmem doctor --json | jq '.libraries[].missing'`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"so"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error { return diagnose(args, flags.Format(c)) },
	}
	flags.Takes(c, flags.JSON)
	return c
}

func diagnose(files []string, format term.Format) error {
	d := diagnosis{V: 1, Features: doctor.Features(), Libraries: []*doctor.Inspection{}}
	root := os.Geteuid() == 0 || kernel.MayTrace()
	d.untried = explainUntried(d.Features, root)
	failed := false
	for _, file := range files {
		one, err := doctor.InspectFile(file)
		if err != nil {
			term.Warn(err.Error() + "; give the path of a libtt_metal.so")
			failed = true
			continue
		}
		d.Libraries = append(d.Libraries, one)
	}
	if len(files) == 0 {
		mapped, err := doctor.InspectMapped()
		if err != nil {
			return err
		}
		d.Libraries = append(d.Libraries, mapped...)
	}
	if format.JSON {
		if err := page.JSON(os.Stdout, d); err != nil {
			return err
		}
	} else {
		d.write(os.Stdout, format.LayoutFor(os.Stdout), len(files) == 0, root)
	}
	if failed {
		return term.ExitStatus(1)
	}
	for _, f := range d.Features {
		// files can be checked on any host
		if !f.OK && len(files) == 0 {
			return term.ExitStatus(1)
		}
	}
	for _, l := range d.Libraries {
		if len(l.Missing) > 0 {
			return term.ExitStatus(1)
		}
	}
	return nil
}

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
func (d *diagnosis) writeHost(w *bufio.Writer, layout page.Layout, root bool) {
	if !root {
		fmt.Fprintln(w, "Run without root: the libraries of processes are not looked at, and of the kernel")
		if len(d.untried) > 0 {
			fmt.Fprintf(w, "could not be tried: %s.\n", strings.Join(d.untried, ", "))
		} else {
			fmt.Fprintln(w, "all could be tried.")
		}
		fmt.Fprint(w, "`sudo ttmem doctor` checks the rest.\n\n")
	}
	fmt.Fprintln(w, "Host")
	for _, f := range d.Features {
		mark := "ok"
		switch {
		case slices.Contains(d.untried, f.Name):
			mark = "?"
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
	fmt.Fprintf(w, "\n%s\n\n", d.verdict())
}

// verdict returns a line that says whether tracing works on this host.
func (d *diagnosis) verdict() string {
	var missing []string
	for _, f := range d.Features {
		if !f.OK && !slices.Contains(d.untried, f.Name) {
			missing = append(missing, f.Name)
		}
	}
	switch {
	case len(missing) > 0:
		return "Tracing does not work here: " + strings.Join(missing, ", ") + "."
	case len(d.untried) > 0:
		return "Whether tracing works here is not known."
	}
	return "Tracing works here."
}

func (d *diagnosis) write(to io.Writer, layout page.Layout, mapped, root bool) {
	w := bufio.NewWriter(to)
	defer w.Flush()
	if mapped {
		d.writeHost(w, layout, root)
	}
	switch {
	case !mapped || len(d.Libraries) > 0:
	case !root:
		fmt.Fprintln(w, "`ttmem doctor LIBRARY` looks at a library without root:\n  "+libraryExample)
	default:
		fmt.Fprintln(w, "No process maps a tt-metal library now. `ttmem doctor LIBRARY` looks at a file:\n  "+libraryExample)
	}
	for i, l := range d.Libraries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeLibrary(w, layout, l)
	}
}

// writeLine writes a text beside columns, cleaned, because libraries belong to any user.
func writeLine(w *bufio.Writer, layout page.Layout, columns, text string) {
	if text == "" {
		fmt.Fprintln(w, strings.TrimRight(columns, " "))
		return
	}
	layout.Beside(w, columns, page.NoStyle, event.Printable(text))
}

func writeLibrary(w *bufio.Writer, layout page.Layout, l *doctor.Inspection) {
	line := func(columns, format string, args ...any) {
		writeLine(w, layout, page.Left(columns, 12), fmt.Sprintf(format, args...))
	}
	writeLine(w, layout, "", l.Path)
	line("  release", "%s", cmp.Or(l.Release, "not known"))
	line("  build-id", "%s", l.BuildID)
	if len(l.Processes) > 0 {
		line("  mapped by", "%s", strings.Trim(fmt.Sprint(l.Processes), "[]"))
	}
	line("  fields", "%d found in the machine code", len(l.Fields))
	if len(l.Single) > 0 {
		line("", "in one function only: %s", strings.Join(l.Single, ", "))
	}
	line("  probes", "%d found", len(l.Probes))
	if len(l.Slow) > 0 {
		line("", "on single-stepped instructions, slower: %s", strings.Join(l.Slow, ", "))
	}
	if len(l.Missing) == 0 {
		line("  missing", "nothing")
	}
	for _, m := range l.Missing {
		line("  MISSING", "%s (%s): %s", m.Name, m.Why, m.Costs)
	}
}
