package flags

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/service"
)

// Flags that several commands have are made here, so that they mean the same everywhere.

// The flags of all commands.
const (
	JSON   = "json"
	Rules  = "rules"
	Socket = "socket"
)

// socketVariable names the socket where --socket does not.
const socketVariable = "TTMEM_SOCKET"

// AddGlobal makes the flags of all commands.
func AddGlobal(root *cobra.Command) {
	f := root.PersistentFlags()
	f.Bool(JSON, false, "print JSON in place of text")
	f.String(Rules, "", "name components of the model by the rules in `FILE`")
	f.String(Socket, service.DefaultSocket, "`PATH` of the service's socket ($"+socketVariable+")")
	_ = root.MarkPersistentFlagFilename(Rules)
	_ = root.MarkPersistentFlagFilename(Socket, "sock")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		for _, flag := range []string{JSON, Rules, Socket} {
			if c.Flags().Changed(flag) && !TakesGlobal(c, flag) {
				return fmt.Errorf("--%s has no effect on %s: leave it out", flag, c.CommandPath())
			}
		}
		return nil
	}
}

// Takes says which of the flags of all commands have an effect on one.
func Takes(c *cobra.Command, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	for _, flag := range flags {
		c.Annotations["takes --"+flag] = "yes"
	}
}

func TakesGlobal(c *cobra.Command, flag string) bool {
	return c.Annotations["takes --"+flag] != ""
}

func WantsJSON(c *cobra.Command) bool {
	asked, _ := c.Flags().GetBool(JSON)
	return asked
}

func RulesFile(c *cobra.Command) string {
	path, _ := c.Flags().GetString(Rules)
	return path
}

// SocketOf is the path of the service's socket; named is true where the flag names it.
func SocketOf(c *cobra.Command) (path string, named bool) {
	if f := c.Flags().Lookup(Socket); f != nil && f.Changed {
		return f.Value.String(), true
	}
	return cmp.Or(os.Getenv(socketVariable), service.DefaultSocket), false
}

func PIDs(c *cobra.Command, pids *[]int) {
	c.Flags().IntSliceVarP(pids, "pid", "p", nil, "only the process `PID` (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("pid", cobra.NoFileCompletions)
}

func Duration(c *cobra.Command, duration *time.Duration) {
	c.Flags().DurationVar(duration, "duration", 0, "end after this `TIME`, such as 30s or 5m (default: at Ctrl-C)")
	_ = c.RegisterFlagCompletionFunc("duration", cobra.NoFileCompletions)
}

func Interval(c *cobra.Command, interval *time.Duration, normally time.Duration) {
	c.Flags().DurationVar(interval, "interval", normally, "sampling interval: a `TIME` such as 500ms or 10s")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
}

func Limit(c *cobra.Command, n *int, normally int) {
	c.Flags().IntVarP(n, "limit", "n", normally, "list at most `N` (0: all)")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// groupings are the values of --by, which are the same everywhere.
var groupings = []string{"stack", "op", "file", "component", "type", "region", "chip", "process"}

func By(c *cobra.Command, by *string, normally string) {
	c.Flags().StringVar(by, "by", normally, "group by `WHAT`: "+strings.Join(groupings, ", "))
	Complete(c, "by", groupings)
}

// CheckBy is an error where there is no such grouping.
func CheckBy(by string) error {
	if !slices.Contains(groupings, by) {
		return fmt.Errorf("--by %s: choose %s", by, strings.Join(groupings, ", "))
	}
	return nil
}

func Chips(c *cobra.Command, chips *[]int) {
	c.Flags().IntSliceVar(chips, "chip", nil, "only chip `N` (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("chip", cobra.NoFileCompletions)
}

func Regions(c *cobra.Command, regions *[]string, known []string) {
	c.Flags().StringSliceVar(regions, "region", nil, "only `REGION`, such as DRAM or L1 (may be repeated)")
	Complete(c, "region", known)
}

func Grep(c *cobra.Command, grep *string) {
	c.Flags().StringVar(grep, "grep", "", "only where `REGEXP` matches a name, component or FILE:LINE FUNCTION")
	_ = c.RegisterFlagCompletionFunc("grep", cobra.NoFileCompletions)
}

// Moments are in docs/diff.md.

func At(c *cobra.Command, at *string, normally string) {
	c.Flags().StringVar(at, "at", normally, "the `MOMENT`: begin, end, peak, failure, a mark, or a time such as 2.5s")
	words := []string{"begin", "end", "peak", "failure"}
	if normally == "left" {
		words = []string{"left", "end", "peak"}
	}
	Complete(c, "at", words)
}

func From(c *cobra.Command, from *string, words ...string) {
	c.Flags().StringVar(from, "from", "", "begin at this `MOMENT`, such as a mark")
	Complete(c, "from", words)
}

func To(c *cobra.Command, to *string, normally string, words ...string) {
	c.Flags().StringVar(to, "to", normally, "end at this `MOMENT`, such as a mark")
	Complete(c, "to", words)
}

func FailAbove(c *cobra.Command, size *Size) {
	c.Flags().Var(size, "fail-above", "exit with status 3 above this `SIZE`, such as 1MiB")
	_ = c.RegisterFlagCompletionFunc("fail-above", cobra.NoFileCompletions)
}

// Complete completes a flag with the values that there are.
func Complete(c *cobra.Command, flag string, values []string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
