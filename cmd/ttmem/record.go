package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// recordOptions are the flags of files of recordings.
type recordOptions struct {
	path    string
	maxSize flags.Size
	keep    int
	// private is true where the recording has processes of other users.
	private bool
	// existing is what happens to an older file.
	existing recording.Existing
}

// leastMaxSize is the smallest limit: a smaller file would be little more than its
// checkpoint.
const leastMaxSize = 64 << 10

func (o *recordOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.Var(&o.maxSize, "max-size", "begin another file when one has this `SIZE`, such as 500MiB (64KiB at least): the older one becomes FILE.1")
	f.IntVar(&o.keep, "keep", 0, "keep `N` files in all and remove older ones (0: all)")
	_ = c.RegisterFlagCompletionFunc("max-size", cobra.FixedCompletions(
		[]string{"100MiB", "500MiB", "1GiB"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("keep", cobra.NoFileCompletions)
}

func (o *recordOptions) check(c *cobra.Command) error {
	switch {
	case o.path == "-":
		return errors.New("a recording is binary: name a file; /dev/stdout is standard output")
	case c.Flags().Changed("max-size") && o.maxSize < leastMaxSize:
		return errors.New("--max-size: too small: give 64KiB at least, or leave it out for one file without a limit")
	case o.keep < 0:
		return fmt.Errorf("--keep %d: must not be negative", o.keep)
	case o.keep == 1:
		return errors.New("--keep 1: at least 2 files are needed, or a full one would take all with it")
	case o.keep > 0 && o.maxSize == 0:
		return errors.New("--keep is about several files: give --max-size too")
	}
	return nil
}

func newRecord() *cobra.Command {
	var o sessionOptions
	c := &cobra.Command{
		Use:   "record -o FILE [-p PID]… [-- COMMAND [ARG…]]",
		Short: "Record a command, processes or the whole host to a file",
		Long: `Records the device memory events of a command, of processes, or of the whole host to a file.

Every viewing command reads the file in place of a live process. It can be read while it is
written, and lacks at most the last second if ttmem is killed. With --max-size a full file
is continued in another one, and each can be read alone (docs/recordings.md). Only its owner
can read a recording of the whole host. The exit status is that of the command, or 1 if
ttmem fails and the command does not.`,
		Example: `  ttmem record -o model.ttmem -- python model.py
  ttmem record -o model.ttmem -p 4242 --duration 10m
  ttmem record -o host.ttmem --max-size 1GiB --keep 10
  ttmem leaks model.ttmem`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(o.source.Stacks.MarkAt) > 0 && len(args) == 0 && len(o.source.PIDs) == 0:
				return errors.New("--mark-at: missing -p PID or -- COMMAND")
			case o.record.path == "":
				return errors.New("missing -o FILE: ttmem record -o model.ttmem -- python model.py")
			case len(args) > 0 && len(o.source.PIDs) > 0:
				return errors.New("-p and a command: give one of them")
			case len(args) > 0 && o.source.Duration != 0:
				return errors.New("--duration and a command: a command is traced to its end")
			}
			o.source.Command = args
			o.record.private = len(args)+len(o.source.PIDs) == 0
			return trace(o, failureStatus(c))
		},
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := o.source.Stacks.Check(); err != nil {
				return err
			}
			return o.record.check(c)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVarP(&o.record.path, "output", "o", "", "write to `FILE`")
	_ = c.MarkFlagFilename("output", "ttmem")
	o.record.register(c)
	o.source.Stacks.RegisterMore(c)
	o.source.Stacks.RegisterMarkAt(c)
	flags.PIDs(c, &o.source.PIDs)
	flags.Duration(c, &o.source.Duration)
	return c
}

// recordFlush is how long events may not be in the file yet.
const recordFlush = 500 * time.Millisecond

// recorder writes a recording.
type recorder struct {
	file    *recording.File
	path    string
	keep    int
	events  uint64
	flushed time.Time
}

// newRecorder begins a recording of the events that are applied to the state. It is nil if
// nothing is recorded.
func newRecorder(o recordOptions, state *aggregate.State) (*recorder, error) {
	if o.path == "" {
		return nil, nil
	}
	header := recording.NewHeader()
	header.Ttmem = buildVersion()
	files := recording.FileOptions{
		Options: recording.Options{Header: &header}, MaxBytes: int64(o.maxSize), Keep: o.keep, Private: o.private, Existing: o.existing,
		Checkpoint: func() func() *event.Event { return state.Freeze(nil) },
	}
	file, err := recording.Create(o.path, files)
	if err != nil {
		return nil, err
	}
	return &recorder{file: file, path: o.path, keep: o.keep, flushed: time.Now()}, nil
}

func (r *recorder) add(e *event.Event) {
	r.file.Add(e)
	r.events++
}

// full reports whether it is time to write what was added.
func (r *recorder) full() bool { return r.file.Full() }

// flush writes what was added if it is time.
func (r *recorder) flush() error {
	if time.Since(r.flushed) < recordFlush && !r.file.Full() {
		return nil
	}
	r.flushed = time.Now()
	return r.file.Flush()
}

// close ends the recording and says what it has.
func (r *recorder) close(s *memory.Snapshot) error {
	end := recordedEnd(s.Stacks)
	end.TimeNs = s.TimeNs
	if err := r.file.Close(end); err != nil {
		return err
	}
	term.Warn(r.summary(len(s.Processes) > 0))
	if n := s.LostEvents; n > 0 {
		term.Warn(fmt.Sprintf("%s were lost; the report says why", page.Count(n, "event")))
	}
	return nil
}

// summary says what was recorded; seen is true if a process was seen.
func (r *recorder) summary(seen bool) string {
	if !seen {
		return fmt.Sprintf("nothing was recorded to %s: no process that uses tt-metal was seen; `ttmem doctor` lists the libraries that processes have loaded", r.path)
	}
	paths := r.file.Paths()
	bytes := r.file.Size()
	for _, path := range paths[:len(paths)-1] {
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	size := page.Bytes(uint64(bytes))
	if n := len(paths); n > 1 {
		size = fmt.Sprintf("%d files up to %s, %s in all", n, paths[0], size)
		if n == r.keep {
			size += "; older ones are not kept"
		}
	}
	text := fmt.Sprintf("recorded %s to %s (%s)", page.Count(r.events, "event"), r.path, size)
	if info, err := os.Stat(r.path); err == nil && info.Mode().IsRegular() {
		text += fmt.Sprintf("; `ttmem report %s` shows them", r.path)
	}
	return text
}

// recordedEnd is the end mark of a recording.
func recordedEnd(s *memory.Stacks) recording.End {
	if s == nil {
		return recording.End{}
	}
	return recording.End{
		HasStacks: true, Taken: s.Taken, Python: s.Python,
		Incomplete: s.Incomplete, IncompletePython: s.IncompletePython,
	}
}
