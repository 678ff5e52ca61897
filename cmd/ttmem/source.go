package main

import (
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
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer"
	"ttmem/tracer/event"
)

// sourceOptions say where a view's state comes from: a file, processes that run, or
// else the service of this host.
type sourceOptions struct {
	file   string
	pids   []int
	socket string
}

func (o *sourceOptions) register(c *cobra.Command) {
	c.Flags().IntSliceVarP(&o.pids, "attach", "p", nil, "look into the running process `PID` (may be repeated; needs root)")
	c.Flags().StringVar(&o.socket, "socket", service.DefaultSocket, "ask the service at `PATH`")
	_ = c.RegisterFlagCompletionFunc("attach", cobra.NoFileCompletions)
}

// check takes the arguments of the command, and finds what contradicts itself.
func (o *sourceOptions) check(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("one file at a time: %s model.ttmem", c.CommandPath())
	}
	if len(args) == 1 {
		o.file = args[0]
	}
	for _, flag := range []string{"attach", "socket"} {
		if o.file != "" && c.Flags().Changed(flag) {
			return fmt.Errorf("a file and --%s: one or the other", flag)
		}
	}
	if len(o.pids) > 0 && c.Flags().Changed("socket") {
		return errors.New("--attach and --socket: one or the other")
	}
	return nil
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
	// failed is true where not all could be read.
	failed bool
}

// read reads the state; Ctrl-C ends it.
func (o *sourceOptions) read() (p *present, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	switch {
	case o.file != "":
		p, err = presentOfFile(ctx, o.file)
	case len(o.pids) > 0:
		p, err = presentOfProcesses(ctx, o.pids)
	default:
		p, err = presentOfService(ctx, o.socket)
	}
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return p, err
}

// presentOfFile is the state at the end of a file.
func presentOfFile(ctx context.Context, path string) (*present, error) {
	r, err := openRecorded(path)
	if err != nil {
		return nil, err
	}
	defer r.close()
	p := &present{State: aggregate.New(), of: "at the end of " + path}
	events, damage := r.play(ctx, func(e *event.Event) {
		for _, implied := range p.Implied(e) {
			p.Apply(&implied)
		}
		p.Apply(e)
	}, func() {})
	switch {
	case damage != nil && events == 0:
		return nil, damage
	case damage != nil:
		p.notes = append(p.notes, damage.Error())
		p.failed = !errors.Is(damage, io.ErrUnexpectedEOF) // which is no damage: its writer was killed
	case !r.ended():
		p.notes = append(p.notes, path+" has no end: it is still being written, or its writer was killed")
	}
	p.nowNs = p.Snapshot().TimeNs
	return p, nil
}

// presentOfProcesses is what processes have allocated, as read from their memory.
func presentOfProcesses(ctx context.Context, pids []int) (*present, error) {
	if err := canTrace(pids); err != nil {
		return nil, err
	}
	// What was allocated before has no stacks, and nothing else is waited for.
	t, err := tracer.New(tracer.Options{Processes: pids, NoStacks: true, Warn: warn})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if err := areTraced(t, pids); err != nil {
		return nil, err
	}
	p := &present{State: aggregate.New(), of: "in PID " + strings.Trim(fmt.Sprint(pids), "[]")}
	shown := newProgress(0)
	defer shown.end()
	ctx, done := context.WithCancel(ctx)
	defer done()
	err = t.Run(ctx, p.Apply, func() {
		if !t.Reading() {
			done()
		}
		shown.tell(func() string {
			return fmt.Sprintf("what is %s, for %.0f s", p.of, time.Since(shown.begun).Seconds())
		})
	})
	if err != nil {
		return nil, err
	}
	p.nowNs = monotonicNow()
	if len(p.Held()) > 0 {
		p.notes = append(p.notes, "found in the memory of running processes: names and call stacks are not known, and circular buffers "+
			"only of programs that run just now; a recording and the service have them")
	}
	return p, nil
}

// presentOfService is what the host's service knows.
func presentOfService(ctx context.Context, socket string) (*present, error) {
	client, err := service.Dial(socket)
	if errors.Is(err, service.ErrNone) {
		return nil, fmt.Errorf("%w, give a recording (ttmem dump FILE) or a process (sudo ttmem dump -p PID)", err)
	}
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r, err := client.State(ctx)
	if err != nil {
		return nil, err
	}
	p := &present{State: aggregate.New(), of: "on this host"}
	shown := newProgress(0)
	defer shown.end()
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
		shown.tell(func() string { return fmt.Sprintf("%d buffers", n) })
	}
	if _, whole := r.End(); !whole {
		return nil, fmt.Errorf("the ttmem service at %s has ended while it answered: try again", socket)
	}
	p.nowNs = monotonicNow()
	if os.Geteuid() != 0 {
		p.of = "by your processes on this host"
		p.notes = append(p.notes, "of your own processes only: `ttmem report` has what other users take of each chip")
	}
	return p, nil
}

// monotonicNow is CLOCK_MONOTONIC in ns, which events have.
func monotonicNow() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails on no Linux
	return uint64(now.Nano())
}
