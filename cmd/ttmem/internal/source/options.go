// Package source gives commands events and states: from a recording, the host's service, or a
// tracer of running processes or of a command. Commands use all of them in the same way.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Options select the source of events: a file; a command to run; or the service of this host and,
// if none runs, a tracer.
type Options struct {
	File    string
	Command []string
	PIDs    []int
	Socket  string
	// SocketNamed is true if the user named the socket: the source must then be a service.
	SocketNamed bool
	Duration    time.Duration
	Stacks      Stacks
	// Host is true for a view of the whole host: sudo may start a service for it.
	Host bool
	// runs is true if the command accepts -- COMMAND.
	runs bool
	// AwaitLibrary is true if the processes may load their library later.
	AwaitLibrary bool
	// StateOnly is true if the state at the end is enough: a file is then read from its last
	// checkpoint, and a service is asked for the state again.
	StateOnly bool
	// Owners searches the owners of the buffers of running processes before their state is taken:
	// when watching ends, or a service is asked.
	Owners bool
	// Quiet suppresses progress.
	Quiet bool
	// Started, if set, is called when events of running processes begin, with a function that
	// sets a mark, and one that searches the owners of buffers, which come as events.
	Started func(mark func(name string) error, findOwners func(ctx context.Context) error)
	// Ctx ends watching when it is done, as Ctrl-C does; nil: only Ctrl-C does.
	Ctx     context.Context
	Console Console
	// DropPrivileges makes Trace give up root's capabilities, except those for tracing and for
	// writing these files.
	DropPrivileges bool
	Written        []string
	// clock is the clock of the file that was read.
	clock page.Clock
}

// Clock relates the times of events to the wall clock: as at the beginning of the file, or as
// now. It is zero if the file is a pipe that is not read yet.
func (o *Options) Clock() page.Clock {
	switch {
	case o.File == "":
		return page.NewClock(time.Now(), host.Now())
	case !o.clock.Known() && ReadOnce(o.File) == nil:
		if f, err := Open(o.File); err == nil {
			o.clock = Clock(f)
			f.Close()
		}
	}
	return o.clock
}

// Clocked returns handle, but calls set with the clock before the first event: the clock of a
// pipe is known only after reading it.
func (o *Options) Clocked(set func(page.Clock), handle func(*event.Event)) func(*event.Event) {
	first := true
	return func(e *event.Event) {
		if first {
			first = false
			set(o.Clock())
		}
		handle(e)
	}
}

// until returns a context that ends with another one, which may be nil, or at one of the signals.
func until(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmp.Or(ctx, context.Background()), signals...)
}

// Register adds the flags of a view of the present state.
func (o *Options) Register(c *cobra.Command) {
	flags.PIDs(c, &o.PIDs)
	flags.Takes(c, flags.Socket)
	c.ValidArgsFunction = CompleteRecordings
}

// RegisterRun is Register for a view that also takes -- COMMAND.
func (o *Options) RegisterRun(c *cobra.Command) {
	o.Register(c)
	o.runs = true
}

// RegisterWatch is RegisterRun for a view that needs some time.
func (o *Options) RegisterWatch(c *cobra.Command) {
	o.RegisterRun(c)
	flags.Duration(c, &o.Duration)
}

// CompleteRecordings completes the name of one recording.
func CompleteRecordings(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"ttmem"}, cobra.ShellCompDirectiveFilterFileExt
}

// Check takes the arguments of a command, FILE, -- COMMAND or none, and checks them against the
// flags.
func (o *Options) Check(c *cobra.Command, args []string) error {
	behind := ""
	if o.runs {
		behind = "; put a command after --"
	}
	if n := c.ArgsLenAtDash(); n >= 0 {
		o.Command, args = args[n:], args[:n]
		switch {
		case !o.runs:
			return RunsNone(c, o.Command)
		case len(o.Command) == 0:
			return fmt.Errorf("missing command: %s -- python model.py", c.CommandPath())
		case len(args) > 0:
			return errors.New("a file and a command: give one of them")
		case len(o.PIDs) > 0 || c.Flags().Changed("socket"):
			return errors.New("a command, and -p or --socket: give one of them")
		case c.Flags().Changed("duration"):
			return errors.New("--duration and a command: a command is traced to its end")
		}
	}
	if err := flags.CheckDuration(o.Duration); err != nil {
		return err
	}
	switch {
	case len(args) > 0 && c.Flags().Changed("duration"):
		return errors.New("a file and --duration: give one of them")
	case len(args) > 1:
		return fmt.Errorf("one file at a time: %s model.ttmem%s", c.CommandPath(), behind)
	case len(args) == 1:
		o.File = args[0]
	}
	o.Socket, o.SocketNamed = flags.SocketOf(c)
	if o.File != "" && o.SocketNamed {
		return errors.New("a file and --socket: give one of them")
	}
	return flags.CheckPIDs(o.PIDs)
}

// RunsNone returns the error for a view that cannot run -- COMMAND.
func RunsNone(c *cobra.Command, command []string) error {
	return fmt.Errorf("%s runs no command; record it first: ttmem run -o FILE -- %s", c.CommandPath(), strings.Join(command, " "))
}

// Service connects to the host's service. It returns nil if none runs and this process may trace
// itself. For an ordinary user who names a process, sudo starts one.
func (o *Options) Service() (*service.Client, error) {
	client, err := o.connect(len(o.PIDs) > 0 || o.Host)
	if errors.Is(err, service.ErrNone) {
		err = fmt.Errorf("%w, or give a recording", err)
	}
	return client, err
}

// OwnProcessesOnly reports whether the user sees only their own processes: a service shows no
// others to users other than root.
func (o *Options) OwnProcessesOnly() bool {
	return o.File == "" && len(o.Command) == 0 && os.Geteuid() != 0 && !kernel.MayTrace()
}
