package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/session"
)

func newAttach() *cobra.Command {
	var o session.Options
	c := &cobra.Command{
		Use:        "attach [-p PID]…",
		SuggestFor: []string{"record"},
		Short:      "Trace running processes, including their existing memory",
		Long: `Traces and records running processes until they end, the duration is over, or Ctrl-C, and
prints a report. Without -p, it traces all processes that use tt-metal, including later ones;
only its owner can read that recording, ttmem-host-DATE-TIME.ttmem. A recording takes 2 to 20
bytes an event; without -o, only the newest 2 GiB are kept (docs/recordings.md).

ttmem first reads earlier allocations from the processes' memory, without call stacks; then the
duration begins. At the end, it searches the owners of buffers for up to 30 s; Ctrl-C skips that.
The exit status is 1 if a file cannot be written.`,
		Example: `  ttmem attach -p 4242
  ttmem attach -p 4242 --duration 1s     show its current memory, and exit
  ttmem attach --duration 30s --json --no-record
  ttmem attach -o host.ttmem --max-size 1GiB --keep 10`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if _, err := strconv.Atoi(args[0]); err == nil {
				return fmt.Errorf("attach takes no argument %s: did you mean ttmem attach -p %s?", args[0], args[0])
			}
			return fmt.Errorf("attach takes no argument %q: give a process id with -p PID; `ttmem run -- COMMAND` starts a command", args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(o.Source.PIDs) == 0 {
				o.Record.Private = true
			}
			o.Source.Owners = true
			return session.Trace(o, 1)
		},
	}
	o.RegisterTrace(c)
	flags.PIDs(c, &o.Source.PIDs)
	flags.Duration(c, &o.Source.Duration)
	return c
}
