package output

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ttmem/aggregate/export"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
)

// ExportOptions are the flags that name files for a profile by call stack.
type ExportOptions struct {
	Folded, Pprof, FlameGraph string
}

// Register adds the flags.
func (o *ExportOptions) Register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.FlameGraph, "flamegraph", "", "write a flame graph for a browser to `FILE` (-: standard output)")
	f.StringVar(&o.Pprof, "pprof", "", "write a profile for go tool pprof to `FILE` (-: standard output)")
	f.StringVar(&o.Folded, "folded", "", "write folded stacks to `FILE` (-: standard output)")
	_ = c.MarkFlagFilename("flamegraph", "html")
	_ = c.MarkFlagFilename("pprof")
	_ = c.MarkFlagFilename("folded")
}

// An exportTarget is a file that a flag names.
type exportTarget struct {
	flag, path string
	// what describes the file; %s is the number of call stacks
	what  string
	write func(io.Writer, *memory.Profile, export.Options) (int, error)
}

// targets are the files that flags name.
func (o *ExportOptions) targets() []exportTarget {
	var list []exportTarget
	for _, t := range []exportTarget{
		{"--flamegraph", o.FlameGraph, "flame graph of %s", export.FlameGraph},
		{"--pprof", o.Pprof, "pprof profile of %s", export.Pprof},
		{"--folded", o.Folded, "folded stacks of %s", export.Folded},
	} {
		if t.path != "" {
			list = append(list, t)
		}
	}
	return list
}

// Check checks the flags before anything starts. One of them, or --json, may take standard output.
func (o *ExportOptions) Check(c *cobra.Command, json bool) error {
	for _, flag := range []string{"events", "flamegraph", "pprof", "folded"} {
		if f := c.Flags().Lookup(flag); f != nil && f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s: name a file", flag)
		}
	}
	taken := ""
	if json {
		taken = "--json"
	}
	for _, t := range o.targets() {
		if t.path != "-" {
			continue
		}
		if taken != "" {
			return fmt.Errorf("%s and %s cannot both be standard output", taken, t.flag)
		}
		taken = t.flag
	}
	return nil
}

// TakesStdout reports whether a profile goes to standard output.
func (o *ExportOptions) TakesStdout() bool {
	return o.Folded == "-" || o.Pprof == "-" || o.FlameGraph == "-"
}

// An Exporter has the files for a profile.
type Exporter struct {
	Options export.Options
	files   []*exportFile
}

// NewExporter creates the files, so that errors appear before tracing starts. It returns nil if
// no flag names one. The caller must close it.
func NewExporter(o ExportOptions) (*Exporter, error) {
	targets := o.targets()
	if len(targets) == 0 {
		return nil, nil
	}
	x := &Exporter{Options: export.Options{Begun: time.Now()}}
	for _, t := range targets {
		f, err := Create(t.flag, t.path)
		if err != nil {
			x.Close()
			return nil, err
		}
		x.files = append(x.files, &exportFile{f, t})
	}
	return x, nil
}

// Write writes all files, reports their contents, and returns whether all were written.
func (x *Exporter) Write(profile *memory.Profile) bool {
	all := true
	for _, f := range x.files {
		stacks, err := f.target.write(f.W, profile, x.Options)
		if err := f.Finish(err); err != nil {
			term.Warn(fmt.Sprintf("%s %s: %v", f.target.flag, f.target.path, err))
			all = false
			continue
		}
		to := f.target.path
		if to == "-" {
			to = "standard output"
		}
		term.Warn(fmt.Sprintf("wrote "+f.target.what+" to %s", page.Grouped(stacks)+" "+page.Plural(uint64(stacks), "stack"), to))
	}
	return all
}

// Close removes the files that were not written. It does nothing on nil.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	for _, f := range x.files {
		f.Discard()
	}
}

// An exportFile is a file that is written at the end.
type exportFile struct {
	*File
	target exportTarget
}
