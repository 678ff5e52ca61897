// Command ttmem shows who holds the memory of Tenstorrent devices, from outside
// the processes that use them.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/tracer"
)

func main() {
	tracer.BecomeCommand()
	os.Exit(run(os.Args[1:]))
}

// run carries out a command line and gives the exit status.
func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
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
	fmt.Fprintf(os.Stderr, "ttmem: %v\n", err)
	return 1
}

// unknownCommand says in a line what may have been meant by the first argument that is
// no flag.
func unknownCommand(root *cobra.Command, args []string) error {
	name := args[slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })]
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		return fmt.Errorf("%s is no command: `ttmem report %s` shows a recording, `ttmem run -- %s` runs a program", name, name, name)
	}
	root.SuggestionsMinimumDistance = 2
	if like := root.SuggestionsFor(name); len(like) > 0 {
		return fmt.Errorf("there is no command %s: did you mean ttmem %s?", name, strings.Join(like, " or ttmem "))
	}
	return fmt.Errorf("there is no command %s; `ttmem help` lists what there is", name)
}

// errInterrupted says that Ctrl-C ended something before it was done.
var errInterrupted = errors.New("interrupted")

// keepPrivate makes the files that are created from now on readable by nobody else:
// they have command lines and paths of other users.
func keepPrivate() { unix.Umask(0o077) }

// newLine begins a line on a terminal, which shows Ctrl-C as ^C in the current one.
func newLine() {
	if term.IsTerminal(int(os.Stderr.Fd())) {
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
		Long: `ttmem shows who holds the memory of Tenstorrent devices: how much is in use
per chip and region, by which process, against what capacity. It looks at
unmodified programs from outside, by uprobes on the tt-metal library. To trace needs
root; to show recordings, or what a service sees, does not.`,
		Example: `  ttmem run -- python model.py          trace a program from its start to its end
  ttmem attach -p 4242                  trace a running process, with what it holds already
  ttmem record -o model.ttmem -- python model.py
  ttmem report model.ttmem              show what a recording has
  ttmem peak model.ttmem                when each region was fullest, and of what
  ttmem leaks model.ttmem               what was allocated again and again, and kept
  ttmem top                             watch the host, live
  ttmem serve                           trace the host, and answer its users
  ttmem doctor                          what can be traced here, and what is missing`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"trace", "Trace and record:", []*cobra.Command{newRun(), newAttach(), newRecord(), newServe(), newMark()}},
		{"ask", "Ask (a recording, a command, or what runs):", []*cobra.Command{
			newTop(), newReport(), newDump(), newPeak(), newLeaks(), newOOM(), newMap(), newLog(), newDiff(),
		}},
		{"other", "Others:", []*cobra.Command{newSteps(), newDoctor(), newMan()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.SetFlagErrorFunc(flagError)
	return root
}

// flagError says what to give instead where a flag makes no sense.
func flagError(c *cobra.Command, err error) error {
	wrong, ok := err.(interface{ GetValue() string })
	// the text has the flag's names: invalid argument "x" for "-p, --pid" flag: …
	_, rest, found := strings.Cut(err.Error(), "--")
	name, _, _ := strings.Cut(rest, "\"")
	f := c.Flags().Lookup(name)
	if !ok || !found || f == nil {
		return fmt.Errorf("%w; `%s --help` shows what there is", err, c.CommandPath())
	}
	want := errors.Unwrap(err).Error()
	switch f.Value.Type() {
	case "int", "intSlice":
		want = "not a number"
		if name == "pid" {
			want = "not a process id: `pgrep -af python` finds them"
		}
	case "duration":
		want = "not a duration: give one such as 30s or 5m"
	case "bool":
		want = "neither true nor false"
	}
	return fmt.Errorf("--%s %s: %s", name, wrong.GetValue(), want)
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
