package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/service"
)

func newMark() *cobra.Command {
	c := &cobra.Command{
		Use:   "mark NAME",
		Short: "Give the present moment a name",
		Long: `Gives the present moment a name among the events of the service of this host (ttmem
serve): in what it records, and for who watches what it sees. What happened before the
command began is before the mark, and what happens after it ended is after it. Who joins
later is told of the newest 1000 marks.

ttmem leaks --from NAME --to NAME shows what was allocated between two marks and is still
there. Who traces a program without the service has marks by ttmem leaks --every, by
--mark-at, and by a key in ttmem top.`,
		Example: `  ttmem mark warm
  ttmem mark "epoch 3"`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || args[0] == "":
				return errors.New("which name? For example: ttmem mark warm")
			case len(args) > 1:
				return fmt.Errorf("one name: quote it where it has blanks, as in ttmem mark \"%s %s\"", args[0], args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			socket, _ := socketOf(c)
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			client, err := service.Dial(socket)
			if errors.Is(err, service.ErrNone) {
				return fmt.Errorf("%w: marks are for what ttmem serve sees; a program that is traced without it has --mark-at", err)
			}
			if err != nil {
				return err
			}
			defer client.Close()
			if err := client.Mark(ctx, args[0]); err != nil {
				if ctx.Err() != nil {
					return errInterrupted
				}
				return err
			}
			warn(fmt.Sprintf("marked %q", args[0]))
			return nil
		},
	}
	takeGlobals(c, socketFlag)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}
