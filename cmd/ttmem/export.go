package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/export"
)

// exportOptions are the flags that name files for the profile by stack.
type exportOptions struct {
	folded, pprof, flameGraph string
	foldedValue               string
}

// registerFlameGraph makes the one flag of a command that traces.
func (o *exportOptions) registerFlameGraph(c *cobra.Command) {
	c.Flags().StringVar(&o.flameGraph, "flamegraph", "", "write a flame graph for a browser to `FILE` (-: standard output)")
	_ = c.MarkFlagFilename("flamegraph", "html")
}

// register makes all flags of exports.
func (o *exportOptions) register(c *cobra.Command) {
	o.registerFlameGraph(c)
	f := c.Flags()
	f.StringVar(&o.pprof, "pprof", "", "write a profile for go tool pprof to `FILE` (-: standard output)")
	f.StringVar(&o.folded, "folded", "", "write folded stacks to `FILE` (-: standard output)")
	f.StringVar(&o.foldedValue, "folded-value", export.PeakBytes.String(),
		"the `VALUE` of folded stacks: "+strings.Join(export.ValueNames(), ", "))
	_ = c.MarkFlagFilename("pprof")
	_ = c.MarkFlagFilename("folded")
	_ = c.RegisterFlagCompletionFunc("folded-value",
		cobra.FixedCompletions(export.ValueNames(), cobra.ShellCompDirectiveNoFileComp))
}

// An exportTarget is one of the files that are asked for.
type exportTarget struct {
	flag, path string
	// what it is, before and after the number of stacks.
	what  string
	write func(io.Writer, *aggregate.Profile, export.Options) (int, error)
}

func (o *exportOptions) targets() []exportTarget {
	var list []exportTarget
	for _, t := range []exportTarget{
		{"--flamegraph", o.flameGraph, "flame graph of %s", export.FlameGraph},
		{"--pprof", o.pprof, "pprof profile of %s", export.Pprof},
		{"--folded", o.folded, "folded " + o.foldedValue + " of %s", export.Folded},
	} {
		if t.path != "" {
			list = append(list, t)
		}
	}
	return list
}

// check finds what is wrong with the flags of a command before anything starts.
func (o *exportOptions) check(c *cobra.Command, events string, json bool) error {
	if o.foldedValue != "" {
		if _, err := export.ParseValue(o.foldedValue); err != nil {
			return fmt.Errorf("--folded-value: %w", err)
		}
	}
	for _, flag := range []string{"flamegraph", "pprof", "folded"} {
		if f := c.Flags().Lookup(flag); f != nil && f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s: name a file", flag)
		}
	}
	if o.folded == "" && c.Flags().Changed("folded-value") {
		return errors.New("--folded-value is of folded stacks: give --folded FILE too")
	}
	targets := o.targets()
	if len(targets) == 0 {
		return nil
	}
	used := make(map[string]string)
	if events != "" {
		used[resolved(events)] = "--events"
	}
	if json {
		used["-"] = "--json"
	}
	for _, t := range targets {
		path := resolved(t.path)
		other, ok := used[path]
		switch {
		case ok && path == "-":
			return fmt.Errorf("%s and %s cannot both be standard output", other, t.flag)
		case ok:
			return fmt.Errorf("%s and %s cannot both be %s", other, t.flag, t.path)
		}
		used[path] = t.flag
	}
	return nil
}

// resolved is one name for all names of a file, whether or not it is there; "-" is
// none.
func resolved(path string) string {
	if path == "-" {
		return path
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for range 40 { // symbolic links may point to what is not there yet
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// An exporter has the files that the profile of a session goes to.
type exporter struct {
	options export.Options
	files   []*exportFile
}

// newExporter creates the files, so that what cannot be written is known before
// tracing starts. It is nil where none are asked for. The exporter is to be
// closed.
func newExporter(o exportOptions) (*exporter, error) {
	targets := o.targets()
	if len(targets) == 0 {
		return nil, nil
	}
	value, err := export.ParseValue(cmp.Or(o.foldedValue, export.PeakBytes.String()))
	if err != nil {
		return nil, err
	}
	x := &exporter{options: export.Options{Value: value, Begun: time.Now()}}
	for _, t := range targets {
		f, err := createExportFile(t)
		if err != nil {
			x.close()
			return nil, err
		}
		x.files = append(x.files, f)
	}
	return x, nil
}

// write writes all files and tells of each what it got. It reports whether all
// were written.
func (x *exporter) write(profile *aggregate.Profile) bool {
	all := true
	for _, f := range x.files {
		stacks, err := f.write(profile, x.options)
		if err != nil {
			warn(err.Error())
			all = false
			continue
		}
		noun := "stacks"
		if stacks == 1 {
			noun = "stack"
		}
		to := f.target.path
		if to == "-" {
			to = "standard output"
		}
		warn(fmt.Sprintf("wrote "+f.target.what+" to %s", export.Grouped(stacks)+" "+noun, to))
	}
	return all
}

// close removes the files that were not written. A nil exporter has none.
func (x *exporter) close() {
	if x == nil {
		return
	}
	for _, f := range x.files {
		f.discard()
	}
}

// An exportFile is a file that is written at once when all is known.
type exportFile struct {
	*wholeFile
	target exportTarget
}

func createExportFile(t exportTarget) (*exportFile, error) {
	f := &wholeFile{f: os.Stdout}
	if t.path != "-" {
		var err error
		if f, err = createWhole(t.flag, t.path); err != nil {
			return nil, err
		}
	}
	return &exportFile{f, t}, nil
}

// A wholeFile gets its name when all of it is written. Until then whatever had that
// name stays as it is: the file has a temporary name in the same folder.
type wholeFile struct {
	f *os.File
	// final is the name that it gets; "" for what cannot be renamed, such as
	// standard output or a pipe.
	final string
	done  bool
}

// createWhole creates a file that a flag names.
func createWhole(flag, path string) (*wholeFile, error) {
	fail := func(err error) (*wholeFile, error) {
		return nil, fmt.Errorf("%s %s: %w; name a file that can be written", flag, path, pathless(err))
	}
	final := path
	info, err := os.Stat(final)
	if err == nil {
		// Opening tells whether it may be written, without doing so.
		f, err := os.OpenFile(final, os.O_WRONLY, 0)
		if err != nil {
			return fail(err)
		}
		if !info.Mode().IsRegular() {
			return &wholeFile{f: f}, nil
		}
		f.Close()
	}
	// what a symbolic link points to is replaced, not the link
	final = resolved(final)
	f, err := createBeside(final)
	if err != nil {
		return fail(err)
	}
	if info != nil {
		// it is for whom the one before was
		_ = f.Chmod(info.Mode().Perm())
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(stat.Uid), int(stat.Gid))
		}
	}
	return &wholeFile{f: f, final: final}, nil
}

// finish gives the file its name; err is how writing it went.
func (f *wholeFile) finish(err error) error {
	if f.f != os.Stdout {
		err = errors.Join(err, f.f.Close())
	}
	if err == nil && f.final != "" {
		err = os.Rename(f.f.Name(), f.final)
	}
	if err != nil {
		f.discard()
		return firstError(err)
	}
	f.done = true
	return nil
}

// discard removes a file that is not to be finished.
func (f *wholeFile) discard() {
	if f.done || f.f == os.Stdout {
		return
	}
	f.done = true
	f.f.Close()
	if f.final != "" {
		os.Remove(f.f.Name())
	}
}

// createBeside creates a file of a temporary name in the folder of another one.
func createBeside(path string) (f *os.File, err error) {
	dir, name := filepath.Split(path)
	for i := range 100 {
		temporary := filepath.Join(dir, fmt.Sprintf(".%s.%d.%d.tmp", name, os.Getpid(), i))
		f, err = os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return f, err
}

// pathless is an error without the name of the file, which the user knows.
func pathless(err error) error {
	var perr *os.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

// write writes the profile and finishes the file.
func (f *exportFile) write(p *aggregate.Profile, o export.Options) (stacks int, err error) {
	stacks, err = f.target.write(f.f, p, o)
	if err := f.finish(err); err != nil {
		return 0, fmt.Errorf("%s %s: %w", f.target.flag, f.target.path, err)
	}
	return stacks, nil
}

// firstError is the first of joined errors, without names of files.
func firstError(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return pathless(err)
}
