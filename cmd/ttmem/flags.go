package main

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
	jsonFlag   = "json"
	rulesFlag  = "rules"
	socketFlag = "socket"
)

// socketVariable names the socket where --socket does not.
const socketVariable = "TTMEM_SOCKET"

// addGlobalFlags makes the flags of all commands.
func addGlobalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.Bool(jsonFlag, false, "print JSON in place of text")
	f.String(rulesFlag, "", "name components of the model by the rules in `FILE`")
	f.String(socketFlag, service.DefaultSocket, "`PATH` of the service's socket ($"+socketVariable+")")
	_ = root.MarkPersistentFlagFilename(rulesFlag)
	_ = root.MarkPersistentFlagFilename(socketFlag, "sock")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		for _, flag := range []string{jsonFlag, rulesFlag, socketFlag} {
			if c.Flags().Changed(flag) && !takesGlobal(c, flag) {
				return fmt.Errorf("--%s has no effect on %s: leave it out", flag, c.CommandPath())
			}
		}
		return nil
	}
}

// takeGlobals says which of the flags of all commands have an effect on one.
func takeGlobals(c *cobra.Command, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	for _, flag := range flags {
		c.Annotations["takes --"+flag] = "yes"
	}
}

func takesGlobal(c *cobra.Command, flag string) bool {
	return c.Annotations["takes --"+flag] != ""
}

func wantsJSON(c *cobra.Command) bool {
	asked, _ := c.Flags().GetBool(jsonFlag)
	return asked
}

func rulesFile(c *cobra.Command) string {
	path, _ := c.Flags().GetString(rulesFlag)
	return path
}

// socketOf is the path of the service's socket; named is true where the flag names it.
func socketOf(c *cobra.Command) (path string, named bool) {
	if f := c.Flags().Lookup(socketFlag); f != nil && f.Changed {
		return f.Value.String(), true
	}
	return cmp.Or(os.Getenv(socketVariable), service.DefaultSocket), false
}

func addPIDs(c *cobra.Command, pids *[]int) {
	c.Flags().IntSliceVarP(pids, "pid", "p", nil, "only the process `PID` (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("pid", cobra.NoFileCompletions)
}

func addDuration(c *cobra.Command, duration *time.Duration) {
	c.Flags().DurationVar(duration, "duration", 0, "end after this `TIME`, such as 30s or 5m (default: at Ctrl-C)")
	_ = c.RegisterFlagCompletionFunc("duration", cobra.NoFileCompletions)
}

func addInterval(c *cobra.Command, interval *time.Duration, normally time.Duration) {
	c.Flags().DurationVar(interval, "interval", normally, "sampling interval: a `TIME` such as 500ms or 10s")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
}

func addLimit(c *cobra.Command, n *int, normally int) {
	c.Flags().IntVarP(n, "limit", "n", normally, "list at most `N` (0: all)")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// groupings are the values of --by, which are the same everywhere.
var groupings = []string{"stack", "op", "file", "component", "type", "region", "chip", "process"}

func addBy(c *cobra.Command, by *string, normally string) {
	c.Flags().StringVar(by, "by", normally, "group by `WHAT`: "+strings.Join(groupings, ", "))
	completeFixed(c, "by", groupings)
}

// checkBy is an error where there is no such grouping.
func checkBy(by string) error {
	if !slices.Contains(groupings, by) {
		return fmt.Errorf("--by %s: choose %s", by, strings.Join(groupings, ", "))
	}
	return nil
}

func addChips(c *cobra.Command, chips *[]int) {
	c.Flags().IntSliceVar(chips, "chip", nil, "only chip `N` (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("chip", cobra.NoFileCompletions)
}

func addRegions(c *cobra.Command, regions *[]string, known []string) {
	c.Flags().StringSliceVar(regions, "region", nil, "only `REGION`, such as DRAM or L1 (may be repeated)")
	completeFixed(c, "region", known)
}

func addGrep(c *cobra.Command, grep *string) {
	c.Flags().StringVar(grep, "grep", "", "only where `REGEXP` matches a name, component or FILE:LINE FUNCTION")
	_ = c.RegisterFlagCompletionFunc("grep", cobra.NoFileCompletions)
}

// Moments are in docs/diff.md.

func addAt(c *cobra.Command, at *string, normally string) {
	c.Flags().StringVar(at, "at", normally, "the `MOMENT`: begin, end, peak, failure, a mark, or a time such as 2.5s")
	words := []string{"begin", "end", "peak", "failure"}
	if normally == "left" {
		words = []string{"left", "end", "peak"}
	}
	completeFixed(c, "at", words)
}

func addFrom(c *cobra.Command, from *string, words ...string) {
	c.Flags().StringVar(from, "from", "", "begin at this `MOMENT`, such as a mark")
	completeFixed(c, "from", words)
}

func addTo(c *cobra.Command, to *string, normally string, words ...string) {
	c.Flags().StringVar(to, "to", normally, "end at this `MOMENT`, such as a mark")
	completeFixed(c, "to", words)
}

func addFailAbove(c *cobra.Command, size *byteSize) {
	c.Flags().Var(size, "fail-above", "exit with status 3 above this `SIZE`, such as 1MiB")
	_ = c.RegisterFlagCompletionFunc("fail-above", cobra.NoFileCompletions)
}

// completeFixed completes a flag with the values that there are.
func completeFixed(c *cobra.Command, flag string, values []string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
