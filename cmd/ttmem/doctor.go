package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/tracer"
)

// diagnosis is the document of `ttmem doctor --json`.
type diagnosis struct {
	V         int                  `json:"v"`
	Features  []tracer.Feature     `json:"features"`
	Libraries []*tracer.Inspection `json:"libraries"`
}

func newDoctor() *cobra.Command {
	var files []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [--library FILE]…",
		Short: "Tell what can be traced here, and what is missing",
		Long: `Tries out what ttmem needs of the kernel and of the user, and reads the tt-metal
libraries that processes map, or the files given: their release and build-id, the
fields and probes found in their machine code, and a line for everything that is
missing and what that costs.

The exit status is 0 where everything needed is there, and 1 elsewhere.`,
		Example: `  ttmem doctor
  ttmem doctor --library venv/lib/python3.10/site-packages/ttnn/build/lib/libtt_metal.so
  ttmem doctor --json | jq '.libraries[].missing'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, args []string) error { return doctor(os.Stdout, files, asJSON) },
	}
	c.Flags().StringArrayVar(&files, "library", nil, "look at this library `FILE` (may be repeated; all mapped ones if not given)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = c.MarkFlagFilename("library", "so")
	return c
}

func doctor(w io.Writer, files []string, asJSON bool) error {
	d := diagnosis{V: 1, Features: tracer.Features(), Libraries: []*tracer.Inspection{}}
	var failed []error
	for _, file := range files {
		one, err := tracer.InspectFile(file)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		d.Libraries = append(d.Libraries, one)
	}
	if len(files) == 0 {
		mapped, err := tracer.InspectMapped()
		if err != nil {
			return err
		}
		d.Libraries = append(d.Libraries, mapped...)
	}
	if asJSON {
		if err := json.NewEncoder(w).Encode(d); err != nil {
			return err
		}
	} else {
		d.write(w, len(files) == 0)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, f := range d.Features {
		// a file can be looked at anywhere
		if !f.OK && len(files) == 0 {
			return exitStatus(1)
		}
	}
	for _, l := range d.Libraries {
		if len(l.Missing) > 0 {
			return exitStatus(1)
		}
	}
	return nil
}

func (d *diagnosis) write(w io.Writer, mapped bool) {
	if mapped {
		fmt.Fprintln(w, "Host")
		for _, f := range d.Features {
			mark := "ok"
			if !f.OK {
				mark = "MISSING"
			}
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-7s  %-22s  %s", mark, f.Name, f.Detail), " "))
		}
		fmt.Fprintln(w)
	}
	if mapped && len(d.Libraries) == 0 {
		fmt.Fprintln(w, "No process maps a tt-metal library now; --library FILE looks at a file.")
	}
	for i, l := range d.Libraries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeLibrary(w, l)
	}
}

func writeLibrary(w io.Writer, l *tracer.Inspection) {
	fmt.Fprintln(w, l.Path)
	release := l.Release
	if release == "" {
		release = "not known"
	}
	fmt.Fprintf(w, "  release   %s\n  build-id  %s\n", release, l.BuildID)
	if len(l.Processes) > 0 {
		fmt.Fprintf(w, "  mapped by %s\n", strings.Trim(fmt.Sprint(l.Processes), "[]"))
	}
	fmt.Fprintf(w, "  fields    %d found in the machine code\n  probes    %d found\n", len(l.Fields), len(l.Probes))
	if len(l.Slow) > 0 {
		fmt.Fprintf(w, "            on single-stepped instructions, slower: %s\n", strings.Join(l.Slow, ", "))
	}
	if len(l.Missing) == 0 {
		fmt.Fprintln(w, "  missing   nothing")
	}
	for _, m := range l.Missing {
		fmt.Fprintf(w, "  MISSING   %s (%s): %s\n", m.Name, m.Why, m.Costs)
	}
}
