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

// CheckProfileBy returns an error for a value of --by that profiles do not have.
func CheckProfileBy(by string) error {
	if by != "stack" && by != "owner" {
		return fmt.Errorf("--by %s: a profile has call stacks: choose stack, or owner for the owner as the outermost frame", by)
	}
	return nil
}

// An ExportTarget is a file that a flag names.
type ExportTarget struct {
	Flag, Path string
	// what describes the file; %s is the number of call stacks
	what  string
	write func(io.Writer, *memory.Profile, export.Options) (int, error)
}

// Targets are the files that flags name.
func (o *ExportOptions) Targets() []ExportTarget {
	var list []ExportTarget
	for _, t := range []ExportTarget{
		{"--flamegraph", o.FlameGraph, "flame graph of %s", export.FlameGraph},
		{"--pprof", o.Pprof, "pprof profile of %s", export.Pprof},
		{"--folded", o.Folded, "folded stacks of %s", export.Folded},
	} {
		if t.Path != "" {
			list = append(list, t)
		}
	}
	return list
}

// Check checks the flags before anything starts. They may not name the same file twice.
func (o *ExportOptions) Check(c *cobra.Command, json bool) error {
	used := make(map[string]string)
	if json {
		used["-"] = "--json"
	}
	for _, t := range o.Targets() {
		path := resolved(t.Path)
		other, ok := used[path]
		switch {
		case ok && path == "-":
			return fmt.Errorf("%s and %s cannot both be standard output", other, t.Flag)
		case ok:
			return fmt.Errorf("%s and %s cannot both be %s", other, t.Flag, t.Path)
		}
		used[path] = t.Flag
	}
	return nil
}

// An Exporter has the files for a profile.
type Exporter struct {
	Options export.Options
	files   []*exportFile
}

// NewExporter creates the files, so that errors appear before tracing starts. It returns nil if
// no flag names one. The caller must close it.
func NewExporter(o ExportOptions) (*Exporter, error) {
	targets := o.Targets()
	if len(targets) == 0 {
		return nil, nil
	}
	x := &Exporter{Options: export.Options{Begun: time.Now()}}
	for _, t := range targets {
		f, err := Create(t.Flag, t.Path)
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
			term.Warn(fmt.Sprintf("%s %s: %v", f.target.Flag, f.target.Path, err))
			all = false
			continue
		}
		to := f.target.Path
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
	target ExportTarget
}
