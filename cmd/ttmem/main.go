// Command ttmem shows who holds the memory of Tenstorrent devices, from outside
// the processes that use them.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

func main() {
	host.BecomeCommand()
	os.Exit(run(os.Args[1:]))
}

// run carries out a command line and gives the exit status.
func run(args []string) int {
	root := newRoot()
	if len(args) > 1 && args[0] == "--" {
		warn(fmt.Sprintf("missing command before -- %s: `ttmem run -- %s` traces a program", args[1], strings.Join(args[1:], " ")))
		return 1
	}
	root.SetArgs(args)
	command, err := root.ExecuteC()
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, errInterrupted):
		newLine()
	}
	if _, _, unknown := root.Find(args); unknown != nil && unknown.Error() == err.Error() {
		err = unknownCommand(root, args)
	}
	warn(err.Error())
	return failureStatus(command)
}

// runFailed is the exit status of ttmem run where ttmem fails and not the command, as of
// timeout and env.
const runFailed = 125

// failureStatus is the exit status of a command that fails.
func failureStatus(c *cobra.Command) int {
	if c.CommandPath() == "ttmem run" {
		return runFailed
	}
	return 1
}

// errInterrupted says that Ctrl-C ended something before it was done.
var errInterrupted = errors.New("interrupted")

// keepPrivate makes the files that are created from now on readable by nobody else:
// they have command lines and paths of other users.
func keepPrivate() { unix.Umask(0o077) }

// newLine begins a line on a terminal, which shows Ctrl-C as ^C in the current one.
func newLine() {
	if isTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr)
	}
}

// exitStatus is an error that was told already and only sets the exit status.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ttmem",
		Short: "Show who holds the memory of Tenstorrent devices",
		Long: `ttmem shows who holds the memory of Tenstorrent devices. It traces unmodified programs from
outside. Tracing needs root; reading recordings does not.`,
		Example: `  ttmem run -- python model.py                     trace a command and report
  ttmem record -o model.ttmem -- python model.py   record it, for all other commands
  ttmem leaks model.ttmem                          what is allocated and never freed`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"trace", "Trace and record:", []*cobra.Command{newRun(), newAttach(), newRecord(), newServe(), newMark()}},
		{"ask", "View a recording, a command, or what runs:", []*cobra.Command{
			newTop(), newReport(), newDump(), newPeak(), newLeaks(), newOOM(), newMap(), newLog(), newDiff(),
		}},
		{"other", "Others:", []*cobra.Command{newSteps(), newDoctor(), newMan(), newVersion()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	help := newHelp()
	help.GroupID = "other"
	root.SetHelpCommand(help)
	root.CompletionOptions.DisableNoDescFlag = true
	root.SetCompletionCommandGroupID("other")
	addCompletion(root)
	root.SetFlagErrorFunc(flagError)
	addGlobalFlags(root)
	setUsage(root)
	return root
}

// newVersion is for who does not think of the flag.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:    "version",
		Short:  "Show ttmem's version",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "ttmem version %s\n", buildVersion())
		},
	}
}

// build is the version that the Makefile gives: the tag and commit that was built.
var build string

// buildVersion is ttmem's version.
func buildVersion() string {
	if build != "" {
		return build
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}
