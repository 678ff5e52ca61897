package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// registerMarkAt makes the flag of commands whose marks may be calls.
func (o *stackOptions) registerMarkAt(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.markAt, "mark-at", nil, "mark each call of the native `FUNCTION`, such as ttnn::softmax (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("mark-at", cobra.NoFileCompletions)
}

// checkMarkAt is an error where calls cannot be seen.
func (o *sourceOptions) checkMarkAt() error {
	switch {
	case len(o.stacks.markAt) == 0:
	case o.file != "":
		return errors.New("--mark-at places marks while a program is traced: ttmem record --mark-at … -o FILE")
	case len(o.command) == 0 && len(o.pids) == 0:
		return errors.New("--mark-at: missing -p PID or -- COMMAND")
	case o.asked:
		return errors.New("--mark-at: the service places no probes of one's own: leave out --socket, and trace as root")
	}
	for _, name := range o.stacks.markAt {
		if name == "" {
			return errors.New("--mark-at: name a function")
		}
	}
	return nil
}
