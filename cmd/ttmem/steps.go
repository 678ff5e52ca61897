package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/steps"
	"ttmem/tracer/host"
)

func newSteps() *cobra.Command {
	o := source.Options{AwaitLibrary: true}
	c := &cobra.Command{
		Use:    "steps -p PID",
		Hidden: true, // the list of commands fits a terminal without it, and test runners call it
		Short:  "Measure the steps of a process, for a test runner",
		Long: `Measures the memory that each step of a process, such as a test, allocated and did not free, and
its peaks.

It reads lines such as "begin NAME" and "end" from standard input, and answers each with a line of JSON.
docs/steps.md has the protocol; ttmem.step() and the pytest plugin of the Python package use it.`,
		Example: `  ttmem steps -p 4242
  pip install ./python/ttmem && pytest --ttmem tests/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("steps takes no argument %q: name the process with ttmem steps -p PID", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(o.PIDs) == 0:
				return errors.New("missing -p PID: ttmem steps -p 4242")
			case len(o.PIDs) > 1:
				return errors.New("steps takes one process: give -p once")
			}
			if err := o.Check(c, args); err != nil {
				return err
			}
			return runSteps(o, os.Stdin, os.Stdout)
		},
	}
	flags.OnePID(c, &o.PIDs)
	flags.Takes(c, flags.Socket)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

// runSteps measures the steps that lines of in begin and end, until in ends.
func runSteps(o source.Options, in io.Reader, out io.Writer) error {
	s := steps.New(out)
	s.Clock, s.Now = o.Clock(), host.Now
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.Ctx = ctx
	failed := make(chan error, 1)
	o.Started = func(mark func(string) error, _ func(context.Context) error) {
		s.Ready()
		go func() {
			failed <- s.Listen(in, mark)
			stop()
		}()
	}
	_, err := o.Watch(s.Handle)
	select {
	case input := <-failed:
		return errors.Join(err, input)
	default:
		return err
	}
}
