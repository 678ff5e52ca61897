// Package flags has the flags that several commands share, so that they mean the same
// everywhere, and reports errors of flags in ttmem's own words.
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
)

// The flags of all commands.
const (
	Color  = "color"
	JSON   = "json"
	Rules  = "rules"
	Socket = "socket"
	UTC    = "utc"
)

// socketVariable is the environment variable with the default of --socket.
const socketVariable = "TTMEM_SOCKET"

// AddGlobal adds the flags of all commands. A command rejects those that it does not take.
func AddGlobal(root *cobra.Command) {
	f := root.PersistentFlags()
	color := term.Auto
	f.Var(&color, Color, "`WHEN` to use colours: auto, never, always (--color)")
	f.Lookup(Color).NoOptDefVal = string(term.Always)
	f.Bool(JSON, false, "print JSON instead of text")
	f.String(Rules, "", "name components of the model by the rules in `FILE`")
	f.Bool(UTC, false, "print wall-clock times, in UTC")
	f.String(Socket, service.DefaultSocket, "socket `PATH` ($"+socketVariable+")")
	_ = root.RegisterFlagCompletionFunc(Color, cobra.FixedCompletions([]string{"always", "auto", "never"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.MarkPersistentFlagFilename(Rules)
	_ = root.MarkPersistentFlagFilename(Socket, "sock")
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && args[0] == "" {
			return isEmpty(c, "the argument")
		}
		var empty error
		c.Flags().Visit(func(f *pflag.Flag) {
			switch value := f.Value.String(); {
			case value == "" && f.Value.Type() == "string", value == "[]" && f.Value.Type() == "stringSlice":
				empty = isEmpty(c, flagName(f))
			}
		})
		if empty != nil {
			return empty
		}
		for _, flag := range []string{Color, JSON, Rules, Socket, UTC} {
			if c.Flags().Changed(flag) && !TakesGlobal(c, flag) {
				if flag == UTC && TakesGlobal(c, Rules) { // which describes memory
					return fmt.Errorf("--utc: %s prints no times: leave it out; --json has wall-clock times", c.CommandPath())
				}
				return fmt.Errorf("--%s has no effect on %s: leave it out", flag, c.CommandPath())
			}
		}
		return nil
	}
}

// isEmpty returns the error for an argument or a flag without a value.
func isEmpty(c *cobra.Command, what string) error {
	return fmt.Errorf("%s is empty: a shell variable may be unset; `%s --help` shows examples", what, c.CommandPath())
}

// Takes declares which of the flags of all commands a command takes.
func Takes(c *cobra.Command, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	for _, flag := range flags {
		c.Annotations["takes --"+flag] = "yes"
	}
}

// TakesGlobal reports whether a command takes one of the flags of all commands.
func TakesGlobal(c *cobra.Command, flag string) bool {
	return c.Annotations["takes --"+flag] != ""
}

// Format returns the values of --json and --color.
func Format(c *cobra.Command) term.Format {
	var format term.Format
	format.JSON, _ = c.Flags().GetBool(JSON)
	if flag := c.Flags().Lookup(Color); flag != nil {
		format.Color = term.When(flag.Value.String())
	}
	return format
}

// WantsUTC returns the value of --utc.
func WantsUTC(c *cobra.Command) bool {
	utc, _ := c.Flags().GetBool(UTC)
	return utc
}

// RulesFile returns the value of --rules.
func RulesFile(c *cobra.Command) string {
	path, _ := c.Flags().GetString(Rules)
	return path
}

// SocketOf returns the path of the service's socket; named is true if the flag was given.
func SocketOf(c *cobra.Command) (path string, named bool) {
	if f := c.Flags().Lookup(Socket); f != nil && f.Changed {
		return f.Value.String(), true
	}
	return usualSocket(), false
}

func usualSocket() string { return cmp.Or(os.Getenv(socketVariable), service.DefaultSocket) }

// IsUsualSocket reports whether a socket is that of commands without --socket.
func IsUsualSocket(path string) bool { return path == usualSocket() }

// PIDs adds --pid.
func PIDs(c *cobra.Command, pids *[]int) { addPID(c, pids, " (may be repeated)") }

// OnePID adds --pid to a command that takes one process.
func OnePID(c *cobra.Command, pids *[]int) { addPID(c, pids, "") }

func addPID(c *cobra.Command, pids *[]int, repeated string) {
	c.Flags().IntSliceVarP(pids, "pid", "p", nil, "only the process `PID`"+repeated)
	_ = c.RegisterFlagCompletionFunc("pid", completePIDs)
}

// notPID is the error for a wrong value of --pid.
const notPID = "not a process id: `pgrep -af python` finds them"

// CheckPIDs returns an error for a wrong value of --pid.
func CheckPIDs(pids []int) error {
	for _, pid := range pids {
		if pid <= 0 {
			return fmt.Errorf("-p %d: %s", pid, notPID)
		}
	}
	return nil
}

// Duration adds --duration.
func Duration(c *cobra.Command, duration *time.Duration) {
	c.Flags().DurationVar(duration, "duration", 0, "end after this `TIME`, such as 30s or 5m (default: at Ctrl-C)")
	_ = c.RegisterFlagCompletionFunc("duration", cobra.NoFileCompletions)
}

// CheckDuration returns an error for a wrong value of --duration.
func CheckDuration(duration time.Duration) error {
	if duration < 0 {
		return fmt.Errorf("--duration %v: must not be negative: write %v", duration, -duration)
	}
	return nil
}

// Interval adds --interval.
func Interval(c *cobra.Command, interval *time.Duration, normally time.Duration) {
	c.Flags().DurationVar(interval, "interval", normally, "refresh interval: a `TIME` such as 500ms or 10s")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
}

// Limit adds --limit.
func Limit(c *cobra.Command, n *int, normally int) {
	c.Flags().IntVarP(n, "limit", "n", normally, "list at most `N` (0: all)")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// CheckLimit returns an error for a wrong value of --limit.
func CheckLimit(n int) error {
	if n < 0 {
		return fmt.Errorf("-n %d: must not be negative; 0 lists all", n)
	}
	return nil
}

// groupings are the values of --by, which are the same everywhere.
var groupings = alloc.GroupingNames()

// By adds --by.
func By(c *cobra.Command, by *string, normally string) {
	c.Flags().StringVar(by, "by", normally, "group by `WHAT`: "+strings.Join(groupings, ", "))
	Complete(c, "by", groupings)
}

// CheckBy returns an error for a wrong value of --by.
func CheckBy(by string) error {
	if !slices.Contains(groupings, by) {
		return fmt.Errorf("--by %s: choose %s", by, strings.Join(groupings, ", "))
	}
	return nil
}

// Chips adds --chip.
func Chips(c *cobra.Command, chips *[]int) {
	c.Flags().Func("chip", "only chip `N`, or 0-7 (may be repeated)", func(text string) error {
		ids, err := page.ParseChips(text)
		if err == nil && len(ids) == 0 {
			err = errors.New(page.NotAChip)
		}
		*chips = append(*chips, ids...)
		return err
	})
	_ = c.RegisterFlagCompletionFunc("chip", cobra.NoFileCompletions)
}

// Regions adds --region; known are the regions to complete.
func Regions(c *cobra.Command, regions *[]string, known []string) {
	c.Flags().StringSliceVar(regions, "region", nil, "only `REGION`, such as DRAM or L1 (may be repeated)")
	Complete(c, "region", known)
}

// Grep adds --grep.
func Grep(c *cobra.Command, grep *string) {
	c.Flags().StringVar(grep, "grep", "", "only where `REGEXP` matches a name, component or line")
	_ = c.RegisterFlagCompletionFunc("grep", cobra.NoFileCompletions)
}

// At adds --at; docs/diff.md explains moments.
func At(c *cobra.Command, at *string, normally string) {
	moment(c, "at", at, normally, "at this `MOMENT`: begin, end, peak, failure, story, a mark, or a time such as 2.5s")
}

// AllFrames adds --all-frames: see name.Fold.
func AllFrames(c *cobra.Command, all *bool) {
	c.Flags().BoolVar(all, "all-frames", false, "show the frames of libraries in call stacks, too")
}

// A Span is the values of --from, --to and --within: see moment.Span.
type Span struct{ From, To, Within string }

// Register adds the flags.
func (s *Span) Register(c *cobra.Command, normally string) {
	moment(c, "from", &s.From, "", "begin at this `MOMENT`, such as a mark")
	moment(c, "to", &s.To, normally, "end at this `MOMENT`, such as a mark")
	c.Flags().StringVar(&s.Within, "within", "", "only calls of `FUNCTION`; forward#2: its second call")
	_ = c.RegisterFlagCompletionFunc("within", cobra.NoFileCompletions)
}

func moment(c *cobra.Command, flag string, text *string, normally, usage string) {
	c.Flags().StringVar(text, flag, normally, usage)
	words := []string{"begin", "end", "peak", "failure"}
	if flag != "from" && normally != "end" {
		words = append(words, "left")
	}
	if flag == "at" {
		words = append(words, "story")
	}
	Complete(c, flag, words)
}

// FailAbove adds --fail-above.
func FailAbove(c *cobra.Command, size *Size) {
	c.Flags().Var(size, "fail-above", "exit with status 3 above this `SIZE`, such as 1MiB")
	_ = c.RegisterFlagCompletionFunc("fail-above", cobra.NoFileCompletions)
}

// Complete completes a flag with fixed values.
func Complete(c *cobra.Command, flag string, values []string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
