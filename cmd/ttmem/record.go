package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// recordOptions are the flags of files of recordings.
type recordOptions struct {
	path string
	// none is true if nothing is to be recorded.
	none bool
	// unnamed is true if ttmem chose the path: then tracing goes on if nothing can be recorded.
	unnamed bool
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

// registerFile adds the flags of commands that record unless they are told not to.
func (o *recordOptions) registerFile(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.path, "output", "o", "", "record to `FILE` (default: ttmem-PROGRAM-PID.ttmem, a new file in this folder)")
	f.BoolVar(&o.none, "no-record", false, "record nothing")
	_ = c.MarkFlagFilename("output", "ttmem")
	o.register(c)
}

// register adds the flags of the size of recordings.
func (o *recordOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.Var(&o.maxSize, "max-size", "begin another file when one has this `SIZE`, such as 500MiB (64KiB at least): the older one becomes FILE.1")
	f.IntVar(&o.keep, "keep", 0, "keep `N` files in all and remove older ones (0: all)")
	_ = c.RegisterFlagCompletionFunc("max-size", cobra.FixedCompletions(
		[]string{"100MiB", "500MiB", "1GiB"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("keep", cobra.NoFileCompletions)
}

func (o *recordOptions) check(c *cobra.Command) error {
	f := c.Flags()
	switch {
	case o.none && (f.Changed("output") || f.Changed("max-size") || f.Changed("keep")):
		return errors.New("--no-record writes no recording: leave out -o, --max-size and --keep")
	case f.Changed("output") && o.path == "", o.path == "--": // as in -o -- COMMAND
		return errors.New("-o: name a file, such as -o model.ttmem")
	case o.path == "-":
		return errors.New("a recording is binary: name a file; /dev/stdout is standard output")
	case f.Changed("max-size") && o.maxSize < leastMaxSize:
		return errors.New("--max-size: give 64KiB or more, or leave it out for one file without a limit")
	case o.keep < 0:
		return fmt.Errorf("--keep %d: must not be negative; 0 keeps all", o.keep)
	case o.keep == 1:
		return errors.New("--keep 1: give 2 or more: all of a file would be removed when it is full")
	case o.keep > 0 && o.maxSize == 0:
		return errors.New("--keep is about several files: give --max-size too")
	}
	return nil
}

// What is kept of a recording whose file the user did not name: it may go unnoticed.
const (
	unnamedSize = 1 << 30
	unnamedKeep = 2
)

// choose selects a new file in this folder for a recording of a process, 0 being the whole host,
// unless the user named one.
func (o *recordOptions) choose(program string, pid int) {
	if o.none || o.path != "" {
		return
	}
	o.unnamed = true
	of := fmt.Sprintf("%s-%d", fileName(program), pid)
	if pid == 0 {
		of = "host-" + time.Now().Format("20060102-150405")
	}
	o.path = fmt.Sprintf("ttmem-%s.ttmem", of)
	for n := 2; n < 100; n++ { // others may have put files here
		if _, err := os.Lstat(o.path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		o.path = fmt.Sprintf("ttmem-%s-%d.ttmem", of, n)
	}
	if o.maxSize == 0 {
		o.maxSize, o.keep = unnamedSize, unnamedKeep
	}
}

// programName is the Python program of a command line, or the command.
func programName(command []string) string {
	at := slices.IndexFunc(command, func(word string) bool { return strings.HasSuffix(word, ".py") })
	return strings.TrimSuffix(filepath.Base(command[max(0, at)]), ".py")
}

// fileNameLength is the length up to which programs name files.
const fileNameLength = 40

// fileName is a text with nothing that is special in names of files.
func fileName(text string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '_'
	}, text)
	return name[:min(len(name), fileNameLength)]
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

// close ends the recording.
func (r *recorder) close(s *memory.Snapshot) error {
	end := recordedEnd(s.Stacks)
	end.TimeNs = s.TimeNs
	return r.file.Close(end)
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
	return fmt.Sprintf("recorded %s to %s (%s)", page.Count(r.events, "event"), r.path, size)
}

// isFile reports whether commands can read the recording: it is not a pipe.
func (r *recorder) isFile() bool {
	info, err := os.Stat(r.path)
	return err == nil && info.Mode().IsRegular()
}

// next are the commands that answer most questions about the recording, each with what it shows.
func (r *recorder) next(s *memory.Snapshot) [][2]string {
	list := [][2]string{
		{"leaks " + r.path, "what leaks, with call stacks"},
		{"peak " + r.path, "what each peak was made of"},
		{"top " + r.path, "browse it"},
	}
	if s.FailureCount > 0 {
		list = append([][2]string{{"oom " + r.path, "why allocations failed"}}, list[:2]...)
	}
	return list
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
