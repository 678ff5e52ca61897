package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"ttmem/cmd/ttmem/output"
)

// newMan is the command that `make install` makes the manual with.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command to a folder",
		Hidden: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("missing folder: ttmem man /usr/local/share/man/man1")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true // which has the day: the same pages are made again
			header := &doc.GenManHeader{Section: "1", Source: "ttmem " + buildVersion(), Manual: "ttmem"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("%s: %w; name a folder that can be written to", args[0], output.Pathless(err))
			}
			return nil
		},
	}
}
