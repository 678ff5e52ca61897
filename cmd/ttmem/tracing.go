package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// A tracing is what is traced: a command from its start to its end, processes, or all
// of the host. It is to be closed.
type tracing struct {
	*tracer.Tracer
	command  *host.Command // nil: nothing is run
	pids     []int
	duration time.Duration // 0: for as long as there is something to trace
	beside   beside
	// exit is the exit status of the command, when run has returned.
	exit int
	// failed is true where something that was asked for was not there.
	failed bool
	// ready is called once what processes held before they were attached has been read;
	// nil: nobody asks. Of a command there is nothing to be read.
	ready func()
	// stop ends run before its time.
	stop context.CancelFunc
	ctx  context.Context
	// ctrlC has what the terminal sent, and unlisten lets signals end ttmem again; nil
	// where a command gets them.
	ctrlC    chan os.Signal
	unlisten func()
}

// beside says where goes what is written beside what is traced: where the terminal is a
// view's. The zero value is to the standard streams.
type beside struct {
	// streams are those of a command.
	streams host.Streams
	// warn takes warnings, a line each.
	warn func(string)
	// doing is told what takes a while, and "" when it is done; nil: these are warnings.
	doing func(string)
}

// reading tells that the memory of processes is being read, or that it was.
func (b beside) reading(of string, now bool) {
	switch {
	case now && b.doing != nil:
		b.doing("reading the memory of " + of)
	case now:
		b.tell("reading the memory of " + of + ": what was allocated before is not counted yet")
	case b.doing != nil:
		b.doing("")
	default:
		b.tell("what " + of + " had before is read, and counted from now on")
	}
}

func (b beside) tell(warning string) {
	if b.warn == nil {
		b.warn = term.Warn
	}
	b.warn(warning)
}

// traceCommand prepares a command, which run lets go on. Where there is no such
// command, or it cannot be executed, the error is an exitStatus.
func traceCommand(args []string, stacks stackOptions, beside beside) (*tracing, error) {
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	command, err := host.StartCommand(args, beside.streams)
	if err != nil {
		return nil, notStarted(args[0], err, beside)
	}
	what := tracer.Options{Processes: []int{command.PID()}, Children: true, Warn: beside.tell}
	stacks.apply(&what)
	t, err := tracer.New(what)
	if err != nil {
		command.Cancel()
		return nil, err
	}
	for _, path := range host.LikelyLibraries(args[0]) {
		if t.Prepare(path) == nil {
			break
		}
	}
	return newTracing(&tracing{Tracer: t, command: command, beside: beside}), nil
}

// notStarted tells why there is no such command; the exit status is the shells'.
func notStarted(name string, err error, beside beside) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		beside.tell(fmt.Sprintf("%s: no such command", name))
		return term.ExitStatus(127)
	case errors.Is(err, unix.EISDIR):
		beside.tell(name + ": is a directory, and no command")
		return term.ExitStatus(126)
	case errors.Is(err, unix.ENOEXEC):
		beside.tell(fmt.Sprintf("%s: is no program, and does not begin with #!: name the program that runs it, such as python or sh", name))
		return term.ExitStatus(126)
	case errors.Is(err, os.ErrPermission):
		beside.tell(fmt.Sprintf("%s: may not be executed: `chmod +x` allows it, or name the program that runs it, such as python", name))
		return term.ExitStatus(126)
	}
	return err
}

// traceProcesses attaches to the processes given, or to all of the host. Where they are
// expected they need not have loaded a library yet.
func traceProcesses(pids []int, duration time.Duration, stacks stackOptions, expected bool, beside beside) (*tracing, error) {
	if duration < 0 {
		return nil, fmt.Errorf("--duration %v: must not be negative", duration)
	}
	if err := canTrace(pids); err != nil {
		return nil, err
	}
	what := tracer.Options{Processes: pids, Warn: beside.tell}
	stacks.apply(&what)
	t, err := tracer.New(what)
	if err != nil {
		return nil, err
	}
	if !expected {
		if err := areTraced(t, pids); err != nil {
			t.Close()
			return nil, err
		}
	}
	tracing := newTracing(&tracing{Tracer: t, pids: pids, duration: duration, beside: beside})
	tracing.listen()
	return tracing, nil
}

func newTracing(t *tracing) *tracing {
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.unlisten = func() {}
	return t
}

// listen makes signals end run, also before it has begun: nobody is to be told of
// Ctrl-C before.
func (t *tracing) listen() {
	t.ctrlC = make(chan os.Signal, 1)
	signal.Notify(t.ctrlC, unix.SIGINT)
	ctx, stop := signal.NotifyContext(t.ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	t.ctx = ctx
	t.unlisten = func() {
		signal.Stop(t.ctrlC)
		stop()
	}
}

// announce says what is traced, and how it ends.
func (t *tracing) announce() {
	switch {
	case t.command != nil:
	case len(t.pids) == 0:
		term.Warn("tracing every process that uses tt-metal; Ctrl-C ends and reports")
	default:
		term.Warn(fmt.Sprintf("tracing PID %s; Ctrl-C ends and reports", page.PIDs(t.pids)))
	}
}

// run gives events to handle until what is traced has ended; pause is called between
// batches.
func (t *tracing) run(handle func(*event.Event), pause func()) error {
	defer t.stop()
	if t.command != nil {
		return t.runCommand(handle, pause)
	}
	defer t.unlisten()
	read := t.whenRead(func() {
		if t.duration > 0 {
			time.AfterFunc(t.duration, t.stop)
		}
		if t.ready != nil {
			t.ready()
		}
	})
	looked := time.Now()
	err := t.Run(t.ctx, handle, func() {
		pause()
		read()
		if len(t.pids) == 0 || time.Since(looked) < 50*time.Millisecond {
			return
		}
		looked = time.Now()
		for _, pid := range t.pids {
			if !host.Ended(pid) {
				return
			}
		}
		t.stop() // all have ended
	})
	select {
	case <-t.ctrlC:
		term.NewLine()
	default:
	}
	return err
}

// readingPatience is how long nothing is said of processes whose memory is read.
const readingPatience = 500 * time.Millisecond

// whenRead calls then once what processes held before they were attached has been read
// from their memory, and says so where that takes long. It returns what is to be called
// now and then.
func (t *tracing) whenRead(then func()) func() {
	began, told, done := time.Now(), false, false
	of := "processes"
	if len(t.pids) > 0 {
		of = "PID " + page.PIDs(t.pids)
	}
	return func() {
		switch {
		case done:
		case !t.Reading():
			done = true
			if told {
				t.beside.reading(of, false)
			}
			then()
		case !told && (t.beside.doing != nil || time.Since(began) > readingPatience):
			told = true
			t.beside.reading(of, true)
		}
	}
}

// endGrace is how long events are waited for after the command's end.
const endGrace = 30 * time.Millisecond

func (t *tracing) runCommand(handle func(*event.Event), pause func()) error {
	stop := passSignals(t.command)
	defer stop()
	status := make(chan int, 1)
	command := t.command
	if err := command.Go(); err != nil {
		return err
	}
	t.command = nil // nothing to cancel any more
	go func() { status <- command.Wait() }()
	ended := time.Time{}
	err := t.Run(t.ctx, handle, func() {
		pause()
		if ended.IsZero() {
			select {
			case t.exit = <-status:
				ended = time.Now()
			default:
			}
		}
		// its last records are in the ring by the time it can be waited for
		if !ended.IsZero() && time.Since(ended) > endGrace {
			t.stop()
		}
	})
	if !t.Discovered() {
		t.beside.tell("no tt-metal library was seen in the command or the processes that it started")
	}
	for _, unfound := range t.Unfound() {
		t.beside.tell(unfound.Error())
		t.failed = true
	}
	return err
}

// interrupt is what ends run from another goroutine: a command is told to end, as by a
// signal that ttmem is sent.
func (t *tracing) interrupt() func() {
	if command := t.command; command != nil {
		return func() { command.Signal(unix.SIGTERM) }
	}
	return t.stop
}

// close ends tracing, and a command that was not let run.
func (t *tracing) close() {
	t.stop()
	t.unlisten()
	if t.command != nil {
		t.command.Cancel()
	}
	t.Tracer.Close()
}

// canTrace makes sure that processes can be traced, and are there.
func canTrace(pids []int) error {
	for _, pid := range pids {
		if pid <= 0 {
			return fmt.Errorf("-p %d: not a process id", pid)
		}
	}
	if err := kernel.Check(); err != nil {
		return err
	}
	for _, pid := range pids {
		if host.Ended(pid) {
			return fmt.Errorf("no process %d", pid)
		}
		if process := host.ProcessOf(pid); process != pid {
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
		if host.Ended(pid) {
			return fmt.Errorf("process %d ended before it could be traced", pid)
		}
		return fmt.Errorf("process %d has no tt-metal library loaded: attach once it has imported ttnn, or start it with `ttmem run`", pid)
	}
	return nil
}

// passSignals passes what ttmem is sent on to the command. What the terminal
// sends goes to the whole foreground group, the command in it, and is not to
// arrive twice.
func passSignals(command *host.Command) (stop func()) {
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
