package main

import (
	"errors"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/session"
)

func newRun() *cobra.Command {
	var o session.Options
	c := &cobra.Command{
		Use:        "run [flags] -- COMMAND [ARG…]",
		SuggestFor: []string{"record"},
		Short:      "Trace a command, report its memory and record it",
		Long: `Runs a command, traces it and the processes that it starts, and prints a report of their
memory on standard error. All viewing commands read the recording, even while it is being
written. It takes 2 to 20 bytes an event; without -o, only the newest 2 GiB are kept
(docs/recordings.md).

The command keeps its standard streams, signals and exit status. The status is 128 plus the
signal's number if a signal ends the command, 125 if ttmem itself fails, 126 if the command
cannot be executed, and 127 if it is not found.`,
		Example: `  ttmem run -- python model.py
  ttmem run -o model.ttmem -- pytest tests/test_attention.py
  ttmem run --json -- python model.py | tail -n 1 | jq .devices`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing command: ttmem run -- python model.py")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.Source.Command = args
			return session.Trace(o, failureStatus(c))
		},
	}
	c.Flags().SetInterspersed(false)
	o.RegisterTrace(c)
	return c
}
