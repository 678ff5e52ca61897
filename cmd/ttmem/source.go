package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer"
	"ttmem/tracer/event"
)

// sourceOptions say where a view's events come from: a file; a command that is run; or
// the service of this host and, where none runs, a tracer of one's own.
type sourceOptions struct {
	file    string
	command []string
	pids    []int
	socket  string
	// asked is true where the user named the socket: nothing else will do
	asked    bool
	duration time.Duration
	stacks   stackOptions
	// expected is true where the processes may load their library later
	expected bool
	// atEnd is true where the state at the end is enough: a file is read from its last
	// checkpoint on
	atEnd bool
	// began is told when events begin to come of what runs, with what sets a mark
	// among them; nil: nobody is
	began func(mark func(name string) error)
	// ctx ends what is watched when it is done, as Ctrl-C does; nil: nothing else does
	ctx    context.Context
	beside beside
}

// until is done with o.ctx, or when one of the signals comes.
func (o *sourceOptions) until(signals ...os.Signal) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmp.Or(o.ctx, context.Background()), signals...)
}

// register makes the flags of a view of what there is now.
func (o *sourceOptions) register(c *cobra.Command) {
	flags.PIDs(c, &o.pids)
	flags.Takes(c, flags.Socket)
	c.ValidArgsFunction = completeRecordings
}

// registerWatch makes the flags of a view of what happens over a time.
func (o *sourceOptions) registerWatch(c *cobra.Command) {
	o.register(c)
	flags.Duration(c, &o.duration)
}

// completeRecordings completes the name of a recording, once.
func completeRecordings(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"ttmem", "jsonl"}, cobra.ShellCompDirectiveFilterFileExt
}

// check takes the arguments of a command that shows what there is, FILE or none, and
// finds what contradicts itself.
func (o *sourceOptions) check(c *cobra.Command, args []string) error {
	if n := c.ArgsLenAtDash(); n >= 0 {
		return fmt.Errorf("%s runs no command; record it first: ttmem record -o FILE -- %s", c.CommandPath(), strings.Join(args[n:], " "))
	}
	return o.checkFile(c, args)
}

// checkWatch is check for a command that takes -- COMMAND too.
func (o *sourceOptions) checkWatch(c *cobra.Command, args []string) error {
	if n := c.ArgsLenAtDash(); n >= 0 {
		o.command, args = args[n:], args[:n]
		switch {
		case len(o.command) == 0:
			return fmt.Errorf("missing command: %s -- python model.py", c.CommandPath())
		case len(args) > 0:
			return errors.New("a file and a command: give one of them")
		case len(o.pids) > 0 || c.Flags().Changed("socket"):
			return errors.New("a command, and -p or --socket: give one of them")
		case c.Flags().Changed("duration"):
			return errors.New("--duration and a command: a command is traced to its end")
		}
	}
	switch {
	case o.duration < 0:
		return fmt.Errorf("--duration %v: must not be negative", o.duration)
	case len(args) > 0 && c.Flags().Changed("duration"):
		return errors.New("a file and --duration: give one of them")
	case len(args) > 1:
		return fmt.Errorf("one file at a time: %s model.ttmem; a command goes behind --", c.CommandPath())
	}
	return o.checkFile(c, args)
}

func (o *sourceOptions) checkFile(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("one file at a time: %s model.ttmem", c.CommandPath())
	}
	if len(args) == 1 {
		o.file = args[0]
	}
	o.socket, o.asked = flags.SocketOf(c)
	if o.file != "" && o.asked {
		return errors.New("a file and --socket: give one of them")
	}
	for _, pid := range o.pids {
		if pid <= 0 {
			return fmt.Errorf("-p %d: not a process id", pid)
		}
	}
	return nil
}

// service connects to the host's service. It is nil where none runs and the user can
// trace himself.
func (o *sourceOptions) service() (*service.Client, error) {
	client, err := service.Dial(o.socket)
	if errors.Is(err, service.ErrNone) && !o.asked {
		if os.Geteuid() == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%w, give a recording, or trace as root with sudo", err)
	}
	return client, err
}

// present is a state, and what is to be known of it.
type present struct {
	*aggregate.State
	// nowNs is CLOCK_MONOTONIC when the state was so.
	nowNs uint64
	// of is where it is from: "at the end of model.ttmem".
	of string
	// notes are what it lacks, a line each.
	notes []string
	// others is what is known of the processes of other users, where only the user's own
	// are seen; "" where all are.
	others string
	// failed is true where not all could be read.
	failed bool
}

// read reads the state; Ctrl-C ends it.
func (o *sourceOptions) read() (p *present, err error) {
	if o.file != "" {
		return presentOfFile(o.file)
	}
	ctx, stop := o.until(unix.SIGINT, unix.SIGTERM)
	defer stop()
	client, err := o.service()
	if err != nil {
		return nil, err
	}
	if client != nil {
		defer client.Close()
		p, err = presentOfService(ctx, client, o.socket)
	} else {
		p, err = presentOfProcesses(ctx, o.pids)
	}
	if ctx.Err() != nil {
		return nil, term.ErrInterrupted
	}
	return p, err
}

// presentOfFile is the state at the end of a file.
func presentOfFile(path string) (*present, error) {
	p := &present{State: aggregate.New(), of: "at the end of " + shownName(path)}
	w, err := watchEnd(path, p.Apply)
	if err != nil {
		return nil, err
	}
	p.Advance(w.endNs)
	p.nowNs, p.notes, p.failed = p.Snapshot().TimeNs, w.notes, w.failed
	return p, nil
}

// presentOfProcesses is what processes have allocated, as read from their memory.
func presentOfProcesses(ctx context.Context, pids []int) (*present, error) {
	if err := canTrace(pids); err != nil {
		return nil, err
	}
	// What was allocated before has no stacks, and nothing else is waited for.
	t, err := tracer.New(tracer.Options{Processes: pids, NoStacks: true, Warn: term.Warn})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if err := areTraced(t, pids); err != nil {
		return nil, err
	}
	p := &present{State: aggregate.New(), of: "on this host"}
	if len(pids) > 0 {
		p.of = "in PID " + page.PIDs(pids)
	}
	shown := term.NewProgress(0)
	defer shown.End()
	ctx, done := context.WithCancel(ctx)
	defer done()
	err = t.Run(ctx, p.Apply, func() {
		if !t.Reading() {
			done()
		}
		shown.Report(func() string {
			return fmt.Sprintf("what is %s, for %.0f s", p.of, time.Since(shown.Begun).Seconds())
		})
	})
	if err != nil {
		return nil, err
	}
	p.nowNs = monotonicNow()
	if len(p.Buffers()) > 0 {
		p.notes = append(p.notes, "found in the memory of running processes: names and call stacks are not known, and circular buffers "+
			"only of programs that run just now; `ttmem record` and `ttmem serve` have them")
	}
	return p, nil
}

// presentOfService is what the host's service knows.
func presentOfService(ctx context.Context, client *service.Client, socket string) (*present, error) {
	r, err := client.State(ctx)
	if err != nil {
		return nil, err
	}
	p := &present{State: aggregate.New(), of: "on this host"}
	shown := term.NewProgress(0)
	defer shown.End()
	var e event.Event
	for n := 0; ; n++ {
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading what the ttmem service at %s tells: %w", socket, err)
		}
		p.Apply(&e)
		shown.Report(func() string { return fmt.Sprintf("%d buffers", n) })
	}
	if _, whole := r.End(); !whole {
		return nil, fmt.Errorf("the ttmem service at %s has ended while it answered: try again", socket)
	}
	p.nowNs = monotonicNow()
	if os.Geteuid() != 0 {
		p.of = "by your processes on this host"
		p.others = otherUsers(ctx, client)
	}
	if health, err := client.Health(ctx); err == nil && health.Reading {
		p.notes = append(p.notes, page.StillReading)
	}
	return p, nil
}

// monotonicNow is CLOCK_MONOTONIC in ns, which events have.
func monotonicNow() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails on no Linux
	return uint64(now.Nano())
}
