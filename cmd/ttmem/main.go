// Command ttmem shows who holds the memory of Tenstorrent devices, from outside
// the processes that use them.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
	}
	fmt.Fprintf(os.Stderr, "ttmem: %v\n", err)
	return 1
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
  ttmem dump -p 4242                    list what a process has allocated now
  ttmem serve                           trace the host, and answer its users
  ttmem doctor                          what can be traced here, and what is missing`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newAttach(), newRecord(), newReport(), newDump(), newServe(), newDoctor())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; `%s --help` shows what there is", err, c.CommandPath())
	})
	return root
}
