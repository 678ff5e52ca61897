package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/tracer"
)

func newAttach() *cobra.Command {
	var o sessionOptions
	var pids []int
	var duration time.Duration
	c := &cobra.Command{
		Use:   "attach [-p PID]…",
		Short: "Trace running processes, with what they hold already",
		Long: `Traces the processes given, or all processes of the host that use tt-metal, now or
later, until they end, the duration is over or Ctrl-C; then prints what they used
of each chip's memory. What they had allocated before is found in their memory; it has
no call stacks.`,
		Example: `  ttmem attach -p 4242
  ttmem attach --duration 30s --json
  ttmem attach -p 4242 -p 4243 --events events.jsonl
  ttmem attach -p 4242 --duration 1m --flamegraph memory.html`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, args []string) error { return attach(o, pids, duration) },
	}
	o.register(c)
	registerProcesses(c, &pids, &duration)
	return c
}

// registerProcesses makes the flags that say which processes are traced, and until
// when.
func registerProcesses(c *cobra.Command, pids *[]int, duration *time.Duration) {
	c.Flags().IntSliceVarP(pids, "pid", "p", nil, "trace the process `PID` (may be repeated; all processes if not given)")
	c.Flags().DurationVar(duration, "duration", 0, "end after this time, such as 30s or 5m")
}

func attach(o sessionOptions, pids []int, duration time.Duration) error {
	if duration < 0 {
		return fmt.Errorf("--duration %v: must not be negative", duration)
	}
	if err := canTrace(pids); err != nil {
		return err
	}
	what := tracer.Options{Processes: pids, Warn: warn}
	o.stacks.apply(&what)
	t, err := tracer.New(what)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := areTraced(t, pids); err != nil {
		return err
	}
	s, err := traceSession(t, o)
	if err != nil {
		return err
	}
	defer s.close()
	if len(pids) == 0 {
		warn("tracing every process that uses tt-metal; Ctrl-C ends and reports")
	} else {
		warn(fmt.Sprintf("tracing PID %s; Ctrl-C ends and reports", strings.Trim(fmt.Sprint(pids), "[]")))
	}

	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looked := time.Now()
	err = s.trace(ctx, t, func() {
		if len(pids) == 0 || time.Since(looked) < 50*time.Millisecond {
			return
		}
		looked = time.Now()
		for _, pid := range pids {
			if !tracer.Ended(pid) {
				return
			}
		}
		cancel() // all have ended
	})
	if err != nil {
		return err
	}
	if err := s.report(); err != nil {
		return err
	}
	if s.failed {
		return exitStatus(1)
	}
	return nil
}

// canTrace makes sure that processes can be traced, and are there.
func canTrace(pids []int) error {
	for _, pid := range pids {
		if pid <= 0 {
			return fmt.Errorf("-p %d: not a process id", pid)
		}
	}
	if err := tracer.Check(); err != nil {
		return err
	}
	for _, pid := range pids {
		if tracer.Ended(pid) {
			return fmt.Errorf("no process %d", pid)
		}
		if process := tracer.ProcessOf(pid); process != pid {
			return fmt.Errorf("%d is a thread of process %d: attach to that", pid, process)
		}
	}
	return nil
}

// areTraced makes sure that there is something to be seen in each process.
func areTraced(t *tracer.Tracer, pids []int) error {
	for _, pid := range pids {
		if t.Maps(pid) {
			continue
		}
		if tracer.Ended(pid) {
			return fmt.Errorf("process %d ended before it could be traced", pid)
		}
		return fmt.Errorf("process %d has no tt-metal library loaded: attach once it has imported ttnn, or start it with `ttmem run`", pid)
	}
	return nil
}
