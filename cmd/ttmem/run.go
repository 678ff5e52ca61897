package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var o sessionOptions
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Trace a command from its first allocation to its end",
		Long: `Runs a command, traces it and the processes that it starts, and prints on
standard error what they used of each chip's memory, at the peak and at the end.

The command's standard streams are its own, signals are passed on to it, and its
exit status becomes ttmem's (128 and the signal's number where a signal ended
it). ttmem's own failures are 125; 127 where there is no such command, and 126 where it
cannot be executed.`,
		Example: `  ttmem run -- python model.py
  ttmem run --events events.jsonl -- pytest tests/test_attention.py
  ttmem run --flamegraph memory.html -- python model.py
  ttmem run --json -- python model.py | tail -n 1 | jq .devices`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("which command? For example: ttmem run -- python model.py")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runCommand(o, args, failureStatus(c)) },
	}
	c.Flags().SetInterspersed(false)
	o.register(c)
	o.exports.registerFlameGraph(c)
	return c
}

// runCommand traces a command to its end. The error has the command's exit status, or failure
// where ttmem itself failed.
func runCommand(o sessionOptions, args []string, failure int) error {
	t, err := traceCommand(args, o.stacks, beside{})
	if err != nil {
		return err
	}
	defer t.close()
	s, err := traceSession(t, o)
	if err != nil {
		return err
	}
	defer s.close()
	err = t.run(s.handle, s.flush)
	if err := errors.Join(err, s.report()); err != nil {
		warn(err.Error())
		s.failed = true
	}
	if t.exit != 0 {
		return exitStatus(t.exit)
	}
	if s.failed || t.failed {
		return exitStatus(failure)
	}
	return nil
}
