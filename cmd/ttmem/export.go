package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/export"
	"ttmem/aggregate/export/sqlite"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
)

// An exportFormat is a row of the table of formats.
type exportFormat struct {
	name, about string
	// extension is that of the file, or of the folder, if the user names none.
	extension string
	// open is how to open the output, with %s for its name.
	open string
	// folder is true if the output is a folder of files, and text if it may go to a terminal.
	folder, text bool
	// twice is true if the recording is read twice, which a pipe cannot be.
	twice bool
	// takes are the flags that only some formats take.
	takes []string
	// write writes the output and returns a description of it.
	write func(x *exportJob) (what string, err error)
}

// exportFormats are all formats, in the order of the help.
var exportFormats = []exportFormat{
	{
		name: "pprof", about: "a profile for go tool pprof", extension: ".pb.gz",
		open: "go tool pprof -http : %s", takes: ofProfiles, write: profileTo(export.Pprof, "pprof profile of %s"),
	},
	{
		name: "perfetto", about: "a trace for ui.perfetto.dev: memory over time, with stacks", extension: ".pftrace",
		open: "https://ui.perfetto.dev opens %s", write: writePerfetto,
	},
	{
		name: "folded", about: "stacks as lines, for flamegraph.pl and grep", extension: ".folded", text: true,
		takes: append([]string{"all-frames"}, ofProfiles...), write: profileTo(export.Folded, "folded stacks of %s"),
	},
	{
		name: "sqlite", about: "a database, for questions in SQL", extension: ".db",
		open: "sqlite3 -box %s", write: eventsTo(sqlite.New, "database of %s"),
	},
	{
		name: "visualizer", about: "a report for TT-NN Visualizer", extension: ".visualizer", folder: true, twice: true,
		open: "ttnn-visualizer --profiler-path %s", takes: []string{"ops"}, write: writeVisualizer,
	},
}

// deleted are formats of earlier versions, and what to use in their place.
var deleted = map[string]string{
	"flamegraph": "`ttmem html FILE` writes a page with the flame graph",
	"memory-viz": "`ttmem html FILE` shows the call sites' memory over time as areas, and each buffer's address and life",
	"speedscope": "speedscope opens the files of --to pprof and --to folded",
}

// ofProfiles are the flags that only profiles take.
var ofProfiles = []string{"at", "by", "value"}

// exportOptions are the flags of export.
type exportOptions struct {
	source    source.Options
	to        string
	path      string
	at, value string
	by        string
	ops       string
	allFrames bool
}

// An exportJob is an output that is being written.
type exportJob struct {
	exportOptions
	format *exportFormat
	out    *output.File
	w      io.Writer // to the file
	// summary describes the recording once it was read.
	summary *source.Summary
}

func newExport() *cobra.Command {
	var o exportOptions
	var formats strings.Builder
	for _, f := range exportFormats {
		fmt.Fprintf(&formats, "\n\t%-12s %s", f.name, f.about)
	}
	c := &cobra.Command{
		Use:   "export FILE --to FORMAT",
		Short: "Convert a recording for pprof, Perfetto, SQL, ...",
		Long: `Converts a recording to another tool's format.

Without -o, the output is a file beside the recording, named after it; folded writes to standard
output if that is a pipe or a file. docs/exports.md describes what each format contains and how to
open it. ttmem html draws flame graphs.
` + formats.String(),
		Example: `  ttmem export model.ttmem --to pprof
  ttmem export model.ttmem --to pprof --at peak
  ttmem export model.ttmem --to folded --value alloc_space | sort -k2 | head
  ttmem export model.ttmem --to pprof --by owner
  ttmem export model.ttmem --to visualizer --ops 100..200 -o report`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && c.ArgsLenAtDash() < 0 {
				return errors.New("missing recording: ttmem export model.ttmem --to pprof")
			}
			return nil
		},
		PreRunE: func(c *cobra.Command, args []string) error { return o.source.Check(c, args) },
		RunE:    func(c *cobra.Command, _ []string) error { return runExport(c, &o) },
	}
	f := c.Flags()
	f.StringVar(&o.to, "to", "", "write this `FORMAT`")
	flags.Complete(c, "to", page.Each(exportFormats, func(f exportFormat) string { return cobra.CompletionWithDesc(f.name, f.about) }))
	f.StringVarP(&o.path, "output", "o", "", "write to `FILE` (-: standard output)")
	f.StringVar(&o.value, "value", "", "show this `VALUE` of a profile: "+strings.Join(exportValues(), ", ")+" (default: peak_space at the end, else inuse_space)")
	flags.Complete(c, "value", exportValues())
	flags.AllFrames(c, &o.allFrames)
	f.StringVar(&o.ops, "ops", "", "only operations `A..B`, counted from 1 (default: as many of the last ones as fit)")
	_ = c.RegisterFlagCompletionFunc("ops", cobra.NoFileCompletions)
	flags.At(c, &o.at, "end")
	f.StringVar(&o.by, "by", "stack", "group a profile by `WHAT`: stack, owner")
	flags.Complete(c, "by", []string{"stack", "owner"})
	flags.PIDs(c, &o.source.PIDs)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

func exportValues() []string {
	return page.Each(export.Values, func(v export.Value) string { return v.Name })
}

// check checks the flags before anything is read or written.
func (o *exportOptions) check(c *cobra.Command) (*exportFormat, error) {
	names := page.Each(exportFormats, func(f exportFormat) string { return f.name })
	known := cmp.Or(deleted[o.to], "choose "+strings.Join(names, ", "))
	i := slices.Index(names, o.to)
	switch {
	case o.to == "":
		return nil, errors.New("missing --to FORMAT: " + known)
	case i < 0:
		return nil, fmt.Errorf("--to %s: %s", o.to, known)
	}
	format := &exportFormats[i]
	for _, flag := range append([]string{"ops", "all-frames"}, ofProfiles...) {
		if c.Flags().Changed(flag) && !slices.Contains(format.takes, flag) {
			return nil, fmt.Errorf("--%s has no effect on --to %s: leave it out", flag, o.to)
		}
	}
	if o.value != "" && export.ValueOf(o.value) == nil {
		return nil, fmt.Errorf("--value %s: choose %s", o.value, strings.Join(exportValues(), ", "))
	}
	if _, _, err := parseOps(o.ops); err != nil {
		return nil, err
	}
	if o.by != "stack" && o.by != "owner" {
		return nil, fmt.Errorf("--by %s: a profile has call stacks: choose stack, or owner for the owner as the outermost frame", o.by)
	}
	if format.twice {
		return format, source.ReadOnce(o.source.File)
	}
	return format, nil
}

// choosePath names the output if the user did not.
func (x *exportJob) choosePath() error {
	if info, err := os.Stdout.Stat(); x.path == "" && err == nil && x.format.text &&
		(info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0) {
		x.path = "-"
	}
	recording := x.source.File
	if x.path == "" && recording == "-" {
		recording = "recording"
	}
	var err error
	if x.path, err = outputPath(x.path, recording, x.format.extension); err != nil {
		return err
	}
	switch {
	case x.path != "-":
	case x.format.folder:
		return fmt.Errorf("-o -: %s writes a folder: name one", x.to)
	case !x.format.text && term.IsTerminal(os.Stdout):
		return fmt.Errorf("-o -: %s is binary, and standard output is a terminal: name a file", x.to)
	}
	return nil
}

// outputPath returns the path of a file that is made from a recording: the one that the user named or,
// if that is "", one beside the recording. It never is the recording.
func outputPath(path, recording, extension string) (string, error) {
	if path == "" {
		path = strings.TrimSuffix(recording, ".ttmem") + extension
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("%s exists: name another file, or replace it with -o %s", path, path)
		}
		return path, nil
	}
	if in, err := os.Stat(recording); err == nil && in.Mode().IsRegular() && output.Names(path, in) {
		return "", fmt.Errorf("-o %s is the recording itself: name another file", path)
	}
	return path, nil
}

func runExport(c *cobra.Command, o *exportOptions) error {
	format, err := o.check(c)
	if err != nil {
		return err
	}
	x := &exportJob{exportOptions: *o, format: format}
	if err := x.choosePath(); err != nil {
		return err
	}
	if source.ReadOnce(x.source.File) == nil { // before anything is opened for writing
		f, err := source.Open(x.source.File)
		if err != nil {
			return err
		}
		f.Close()
	}
	ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	x.source.Ctx = ctx           // from now on
	context.AfterFunc(ctx, stop) // a write may wait for a reader: then Ctrl-C again ends this process
	if format.folder {
		x.out, err = output.CreateFolder("-o", x.path)
	} else {
		x.out, err = output.Create("-o", x.path)
	}
	if err != nil {
		return err
	}
	defer x.out.Discard()
	x.w = x.out.Until(ctx)
	what, err := format.write(x)
	switch {
	case ctx.Err() != nil:
		return term.ErrInterrupted
	case err != nil:
		return err
	}
	if err := x.out.Finish(nil); err != nil {
		return x.failed(err)
	}
	x.describe(what)
	return x.summary.Finish(nil)
}

// failed returns the error of writing the output.
func (x *exportJob) failed(err error) error {
	return fmt.Errorf("-o %s: %w", x.path, output.FirstError(err))
}

// describe says what was written, and how to open it.
func (x *exportJob) describe(what string) {
	if x.path == "-" {
		term.Warn("wrote " + what + " to standard output")
		return
	}
	term.Warn("wrote " + what + " to " + x.path)
	if x.format.open != "" {
		fmt.Fprintln(os.Stderr, "  "+event.Printable(fmt.Sprintf(x.format.open, x.path)))
	}
}

// profileTo returns the function that writes a profile with write, and describes it by what, with
// %s for the number of call stacks.
func profileTo(write func(io.Writer, *memory.Profile, export.Options) (int, error), what string) func(*exportJob) (string, error) {
	return func(x *exportJob) (string, error) {
		p, how, err := x.profile()
		if err != nil {
			return "", err
		}
		stacks, err := write(x.w, p, how)
		if err != nil {
			return "", x.failed(err)
		}
		return fmt.Sprintf(what, page.Grouped(stacks)+" "+page.Plural(uint64(stacks), "stack")), nil
	}
}

// profile returns the profile at the moment of --at.
func (x *exportJob) profile() (p *memory.Profile, how export.Options, err error) {
	at, err := source.ParseAt(x.source.File, x.at)
	if err != nil {
		return nil, how, err
	}
	r := source.Recording{Path: x.source.File, PIDs: x.source.PIDs, Whole: true, KeepSites: true, Ctx: x.source.Ctx}
	end, err := r.StateAt(at, func(s *source.State, of moment.Regions) {
		one := analyze.Profile(s.State, x.by == "owner")
		if at.AtEnd() {
			p = one
			return
		}
		one.Samples = slices.DeleteFunc(one.Samples, func(s memory.Sample) bool {
			region := s.Region
			if region == event.Kernel {
				region = event.DRAM // in which they lie
			}
			return !of(s.Device, region)
		})
		for i := range one.Samples {
			one.Samples[i].Ended = memory.Amount{} // before the moment
		}
		if p != nil {
			one.Samples = append(p.Samples, one.Samples...)
		}
		p = one
	})
	if err != nil {
		return nil, how, err
	}
	x.summary = &end.Summary
	x.summary.Notes = append(x.summary.Notes, page.Doubts(end.Totals().Losses(false, x.source.PIDs), "figures may be wrong")...)
	if at.AtEnd() && p != nil {
		p.LastNs = max(p.LastNs, x.summary.EndNs)
	}
	how = export.Options{Begun: x.summary.File.Created, Of: at.Of(filepath.Base(x.source.File)), Value: x.value, Named: x.value != "", AllFrames: x.allFrames}
	if how.Value == "" {
		how.Value = "inuse_space"
		if at.AtEnd() {
			how.Value = "peak_space"
		}
	}
	return p, how, x.checkProfile(p, &how)
}

// checkProfile returns an error if a profile has nothing to show.
func (x *exportJob) checkProfile(p *memory.Profile, how *export.Options) error {
	sum, stacks := uint64(0), false
	if p != nil {
		for i := range p.Samples {
			n := export.ValueOf(how.Value).Of(&p.Samples[i])
			sum += n
			stacks = stacks || n > 0 && p.Samples[i].Stack != nil
		}
	}
	switch {
	case sum == 0 && len(x.source.PIDs) > 0:
		return cmp.Or(x.source.Missing(), fmt.Errorf("-p %s has no %s %s: choose another process, --value or --at", page.PIDs(x.source.PIDs), how.Value, how.Of))
	case sum == 0:
		return fmt.Errorf("there is no %s %s: choose another --value or --at", how.Value, how.Of)
	case !stacks:
		return fmt.Errorf("%s has no call stacks, which %s needs: record without --no-stacks, and with `ttmem run`", x.source.File, x.to)
	}
	return nil
}
