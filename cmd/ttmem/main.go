// Command ttmem shows what uses the memory of Tenstorrent devices, from outside
// the processes that use them.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/host"
)

func main() {
	host.BecomeCommand()
	status := run(os.Args[1:])
	term.Flush()
	os.Exit(status)
}

// run executes a command line and returns the exit status.
func run(args []string) int {
	root := newRoot()
	switch {
	case len(args) > 1 && args[0] == "--":
		term.Warn(fmt.Sprintf("missing command before -- %s: `ttmem run -- %s` traces a program", args[1], strings.Join(args[1:], " ")))
		return 1
	case len(args) > 0 && args[0] == "": // for which cobra shows help
		term.Warn(unknownCommand(root, args).Error())
		return 1
	}
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		unquoteUsage(root)
	}
	root.SetArgs(args)
	command, err := root.ExecuteC()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, term.ErrInterrupted):
		term.NewLine()
	}
	if _, _, unknown := root.Find(args); unknown != nil && unknown.Error() == err.Error() {
		err = unknownCommand(root, args)
	}
	for _, line := range errorLines(err) {
		term.Warn(line)
	}
	if status := term.ExitStatus(0); errors.As(err, &status) {
		return int(status)
	}
	return failureStatus(command)
}

// errorLines returns the texts of joined errors, without exit statuses.
func errorLines(err error) []string {
	var lines, all []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			lines, all = append(lines, errorLines(one)...), append(all, one.Error())
		}
	}
	if _, isStatus := err.(term.ExitStatus); !isStatus && strings.Join(all, "\n") != err.Error() {
		return []string{err.Error()}
	}
	return lines
}

// runFailed is the exit status of ttmem run if ttmem fails instead of the command, as with
// timeout and env.
const runFailed = 125

// failureStatus returns the exit status of a command that fails.
func failureStatus(c *cobra.Command) int {
	if c.CommandPath() == "ttmem run" {
		return runFailed
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ttmem",
		Short: "Show what uses the memory of Tenstorrent devices",
		Long:  "Shows what uses the memory of Tenstorrent devices. Start: ttmem run -- COMMAND",
		Example: `  ttmem run -o model.ttmem -- python model.py  trace a command and record it
  ttmem leaks model.ttmem                      show what leaks`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"trace", root.Long, []*cobra.Command{
			newRun(), newAttach(), newServe(), newMark(), newSteps(), newMCP(), newAnswer(), newDoctor(), newMan(), newVersion(),
		}},
		{"ask", "View a recording, a command, or running processes:", []*cobra.Command{
			newTop(), newReport(), newDump(), newPeak(), newOps(), newPhases(), newLeaks(), newOOM(record.FailuresFolder), newAdvise(), newFit(), newMap(), newLog(), newDiff(), newHTML(), newExport(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	help := newHelp()
	help.GroupID = "trace"
	root.SetHelpCommand(help)
	root.CompletionOptions.DisableNoDescFlag = true
	root.SetCompletionCommandGroupID("trace")
	addCompletion(root)
	root.SetFlagErrorFunc(flags.Error)
	flags.AddGlobal(root)
	setUsage(root)
	return root
}

// newVersion returns the command version, an alias of --version. The list of commands omits it to
// fit a terminal.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:    "version",
		Short:  "Show ttmem's version",
		Hidden: true,
		Args:   noArgument,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "ttmem version %s\n", buildVersion())
		},
	}
}

// build is the version that the Makefile sets: the release and the commit.
var build string

// buildVersion returns ttmem's version.
func buildVersion() string {
	if build != "" {
		return build
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}
