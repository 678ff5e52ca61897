// Package record writes recordings: the flags that name and bound them, and their files.
// It is not part of ttmem's Go library: it changes without notice.
package record

import (
	"cmp"
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

	"ttmem/cmd/ttmem/internal/flags"
)

// Options are the flags for recordings.
type Options struct {
	Path string
	// None is true if nothing is to be recorded.
	None bool
	// Unnamed is true if ttmem chose the path: tracing then continues even if nothing can be
	// recorded.
	Unnamed bool
	MaxSize flags.Size
	Keep    int
	// Private is true if the recording has processes of other users.
	Private bool
	// CrashDir is the folder of a BlackBox; "" for none.
	CrashDir string
	// rotate renames an older recording of that path; Force replaces it.
	rotate, Force bool
	// version is the version of ttmem.
	version string
}

// leastMaxSize is the smallest limit: a smaller file would be little more than its
// checkpoint.
const leastMaxSize = 64 << 10

// Register adds the flags of commands that record by default.
func (o *Options) Register(c *cobra.Command) {
	o.RegisterFile(c)
	c.Flags().Lookup("output").DefValue = "ttmem-PROGRAM-PID.ttmem"
	c.Flags().BoolVar(&o.Force, "force", false, "replace FILE if it is a recording")
	c.Flags().BoolVar(&o.None, "no-record", false, "record nothing")
}

// RegisterFile adds the flags of recordings.
func (o *Options) RegisterFile(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.Path, "output", "o", "", "record to `FILE`")
	_ = c.MarkFlagFilename("output", "ttmem")
	f.Var(&o.MaxSize, "max-size", "begin a new file at this `SIZE`, such as 500MiB (at least 64KiB); the old one becomes FILE.1")
	f.StringVar(&o.CrashDir, "crash-dir", "", "write small recordings of failed allocations to `DIR`")
	_ = c.MarkFlagDirname("crash-dir")
	f.IntVar(&o.Keep, "keep", 0, "keep the newest `N` files (0: all)")
	_ = c.RegisterFlagCompletionFunc("max-size", cobra.FixedCompletions(
		[]string{"100MiB", "500MiB", "1GiB"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("keep", cobra.NoFileCompletions)
}

// Check finds flags that contradict each other before anything starts.
func (o *Options) Check(c *cobra.Command) error {
	f := c.Flags()
	o.version = c.Root().Version
	switch {
	case o.None && (f.Changed("output") || f.Changed("max-size") || f.Changed("keep")):
		return errors.New("--no-record writes no recording: leave out -o, --max-size and --keep")
	case o.Force && o.Path == "":
		return errors.New("--force replaces the recording that -o names: give -o FILE, or leave it out")
	case o.Path == "--": // as in -o -- COMMAND
		return errors.New("-o: name a file, such as -o model.ttmem")
	case o.Path == "-":
		return errors.New("a recording is binary: name a file; /dev/stdout is standard output")
	case f.Changed("max-size") && o.MaxSize < leastMaxSize:
		return errors.New("--max-size: give 64KiB or more, or leave it out for one file without a limit")
	case o.Keep < 0:
		return fmt.Errorf("--keep %d: must not be negative; 0 keeps all", o.Keep)
	case o.Keep == 1:
		return errors.New("--keep 1: give 2 or more: with 1, each full file would be removed")
	case o.Keep > 0 && o.MaxSize == 0:
		return errors.New("--keep needs --max-size: give both")
	}
	if info, err := os.Stat(o.CrashDir); err == nil && o.CrashDir != "" {
		if err := checkFolder(info); err != nil { // and again when it is used
			return fmt.Errorf("--crash-dir %s: %w", o.CrashDir, err)
		}
	}
	return nil
}

// Written returns the files that are written while tracing, or their folder.
func (o *Options) Written() (paths []string) {
	if !o.None {
		paths = append(paths, cmp.Or(o.Path, "."))
	}
	if o.CrashDir != "" {
		paths = append(paths, o.CrashDir)
	}
	return paths
}

// The limits of a recording that the user did not name, and may not notice.
const (
	unnamedSize = 1 << 30
	unnamedKeep = 2
)

// Choose selects a new file in this folder for a recording of a process, or of the whole host if
// pid is 0, unless the user named a file.
func (o *Options) Choose(program string, pid int) {
	if o.None || o.Path != "" {
		return
	}
	o.Unnamed = true
	of := fmt.Sprintf("%s-%d", fileName(program), pid)
	if pid == 0 {
		of = "host-" + time.Now().Format("20060102-150405")
	}
	o.Path = fmt.Sprintf("ttmem-%s.ttmem", of)
	for n := 2; n < 100; n++ { // other users may have put files here
		if _, err := os.Lstat(o.Path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		o.Path = fmt.Sprintf("ttmem-%s-%d.ttmem", of, n)
	}
	if o.MaxSize == 0 {
		o.MaxSize, o.Keep = unnamedSize, unnamedKeep
	}
}

// ProgramName returns the Python program of a command line, or the command.
func ProgramName(command []string) string {
	at := slices.IndexFunc(command, func(word string) bool { return strings.HasSuffix(word, ".py") })
	return strings.TrimSuffix(filepath.Base(command[max(0, at)]), ".py")
}

// fileNameLength is the maximum length of a program's name in the name of a file.
const fileNameLength = 40

// fileName returns a text without characters that are special in names of files.
func fileName(text string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '_'
	}, text)
	return name[:min(len(name), fileNameLength)]
}
