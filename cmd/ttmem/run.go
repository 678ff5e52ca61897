package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/tracer"
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
it). ttmem's own failures are 1, or 127 where there is no such command.`,
		Example: `  ttmem run -- python model.py
  ttmem run --events events.jsonl -- pytest tests/test_attention.py
  ttmem run --flamegraph memory.html -- python model.py
  ttmem run --pprof memory.pb.gz -- python model.py && go tool pprof -http : memory.pb.gz
  ttmem run --folded memory.folded --folded-value live-bytes -- python model.py
  ttmem run --json -- python model.py | tail -n 1 | jq .devices`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("which command? For example: ttmem run -- python model.py")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runCommand(o, args) },
	}
	c.Flags().SetInterspersed(false)
	o.register(c)
	return c
}

func runCommand(o sessionOptions, args []string) error {
	if err := tracer.Check(); err != nil {
		return err
	}
	command, err := tracer.StartCommand(args)
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			warn(fmt.Sprintf("%s: no such command", args[0]))
			return exitStatus(127)
		}
		return err
	}
	what := tracer.Options{Processes: []int{command.PID()}, Children: true, Warn: warn}
	o.stacks.apply(&what)
	t, err := tracer.New(what)
	if err != nil {
		command.Cancel()
		return err
	}
	defer t.Close()
	for _, path := range tracer.LikelyLibraries(args[0]) {
		if t.Prepare(path) == nil {
			break
		}
	}
	s, err := traceSession(t, o)
	if err != nil {
		command.Cancel()
		return err
	}
	defer s.close()

	stop := passSignals(command)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	status := make(chan int, 1)
	if err := command.Go(); err != nil {
		return err
	}
	go func() { status <- command.Wait() }()
	exit, ended := 0, time.Time{}
	err = s.trace(ctx, t, func() {
		if ended.IsZero() {
			select {
			case exit = <-status:
				ended = time.Now()
			default:
			}
		}
		// its last records are in the ring by the time it can be waited for
		if !ended.IsZero() && time.Since(ended) > endGrace {
			cancel()
		}
	})
	if err := errors.Join(err, s.report()); err != nil {
		warn(err.Error())
		s.failed = true
	}
	if !t.MetAny() {
		warn("no tt-metal library was seen in the command or the processes that it started")
	}
	if exit == 0 && s.failed {
		exit = 1
	}
	if exit != 0 {
		return exitStatus(exit)
	}
	return nil
}

// endGrace is how long events are waited for after the command's end.
const endGrace = 30 * time.Millisecond

// passSignals passes what ttmem is sent on to the command. What the terminal
// sends goes to the whole foreground group, the command in it, and is not to
// arrive twice.
func passSignals(command *tracer.Command) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				if (sig == unix.SIGINT || sig == unix.SIGQUIT) && inForeground() {
					continue
				}
				command.Signal(sig)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// inForeground reports whether ttmem is in the foreground of its terminal.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
