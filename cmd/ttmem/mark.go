package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
)

func newMark() *cobra.Command {
	c := &cobra.Command{
		Use:   "mark NAME",
		Short: "Name the current moment",
		Long: `Names the current moment in the events of the host's service (ttmem serve) and in its recording.

--from, --to and --at of other commands take the name (docs/diff.md). A Python program marks
its own moments, with and without the service: ttmem.mark("warm") (docs/leaks.md#marks).`,
		Example: `  ttmem mark warm
  ttmem mark "epoch 3"
  ttmem leaks --from warm --to "epoch 3"`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || args[0] == "":
				return errors.New("missing name: ttmem mark warm")
			case len(args) > 1:
				return fmt.Errorf("one name at a time: quote it if it has blanks, as in ttmem mark \"%s %s\"", args[0], args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			socket, _ := flags.SocketOf(c)
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			client, err := service.Dial(socket)
			if errors.Is(err, service.ErrNone) {
				return fmt.Errorf("%w, or let the program mark its moments: ttmem.mark(%q) in Python", err, args[0])
			}
			if err != nil {
				return err
			}
			defer client.Close()
			if err := client.Mark(ctx, args[0]); err != nil {
				if ctx.Err() != nil {
					return term.ErrInterrupted
				}
				return err
			}
			term.Warn(fmt.Sprintf("marked %q", args[0]))
			return nil
		},
	}
	flags.Takes(c, flags.Socket)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}
