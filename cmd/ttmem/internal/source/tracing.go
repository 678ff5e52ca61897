package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// A Tracing traces a command from its start to its end, processes, or the whole host. It must be
// closed.
type Tracing struct {
	engine
	own     *tracer.Tracer // the engine, unless a service traces
	o       *Options
	command *host.Command // nil if there is none, or it was started
	begun   func()        // to be called when the command is about to start
	// Exit is the exit status of the command, after Run has returned.
	Exit int
	// Failed is true if something that was requested was not found.
	Failed bool
	// ready, if set, is called once the existing memory of processes has been read. A new command
	// has none.
	ready func()
	// Stop ends Run.
	Stop context.CancelFunc
	ctx  context.Context
	// limiter bounds the tracer's warnings.
	limiter *term.Limiter
	// Again gets the second signal to end.
	Again   chan os.Signal
	signals chan os.Signal
	ctrlC   atomic.Bool // the first signal came from the terminal
	look    lastLook
}

// A Console has the destinations of a command's output and of warnings if a view uses the
// terminal. The zero value is the standard streams.
type Console struct {
	// Streams are the standard streams of a command.
	Streams host.Streams
	// Warn takes warnings, one line each.
	Warn func(string)
	// Doing takes the name of an activity that takes a while, and "" when it is done; if nil,
	// activities are reported as warnings.
	Doing func(string)
}

// reading reports that the memory of processes is being read, or has been read.
func (c Console) reading(of string, now bool) {
	switch {
	case now && c.Doing != nil:
		c.Doing("reading the memory of " + of)
	case now:
		c.warn("reading the memory of " + of + ": existing buffers are not counted yet")
	case c.Doing != nil:
		c.Doing("")
	default:
		c.warn("the memory of " + of + " has been read: existing buffers are counted from now on")
	}
}

func (c Console) warn(warning string) {
	if c.Warn == nil {
		c.Warn = term.Warn
	}
	c.Warn(warning)
}

// Trace begins to trace: the command, which Run starts, the processes, or the whole host. If
// there is no such command, or it cannot be executed, the error is an exit status.
func (o *Options) Trace() (*Tracing, error) {
	if len(o.Command) > 0 {
		return o.traceCommand()
	}
	if err := flags.CheckDuration(o.Duration); err != nil {
		return nil, err
	}
	client, err := o.inPlaceOfRoot()
	if err == nil {
		err = canTrace(o.PIDs, client == nil)
	}
	if err != nil {
		return nil, err
	}
	signals, begun := o.awaitBegin()
	defer begun()
	o.dropPrivileges()
	t, err := o.newTracing(signals, client, tracer.Options{Processes: o.PIDs, Owners: true})
	if err != nil {
		return nil, err
	}
	if !o.AwaitLibrary {
		if err := areTraced(t, o.PIDs); err != nil {
			t.Close()
			return nil, err
		}
	}
	begun()
	t.listen()
	return t, nil
}

// awaitBegin returns a channel of the signals that end ttmem, and a function to call once tracing
// has begun. Until then, which takes a while on a busy host, a signal ends ttmem at once. A view that
// uses the terminal handles signals itself.
func (o *Options) awaitBegin() (signals chan os.Signal, begun func()) {
	signals = make(chan os.Signal, 2)
	if o.Console.Doing != nil {
		return signals, func() {}
	}
	notify(signals)
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case by := <-signals:
			select {
			case <-done:
				signals <- by // it is for what follows
				return
			default:
			}
			if by == unix.SIGINT {
				term.NewLine()
			}
			o.notBegun(by)
		}
	}()
	ready := term.While("ttmem: getting ready")
	return signals, sync.OnceFunc(func() {
		close(done)
		ready()
	})
}

// notBegun ends ttmem because of a signal.
func (o *Options) notBegun(by os.Signal) {
	o.Console.warn("interrupted before tracing began: nothing was traced")
	os.Exit(128 + int(by.(unix.Signal)))
}

// notify makes the signals that end ttmem go to a channel.
func notify(signals chan os.Signal) {
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) { // as under nohup
		signal.Notify(signals, unix.SIGHUP)
	}
}

func (o *Options) traceCommand() (*Tracing, error) {
	client, err := o.inPlaceOfRoot()
	if err == nil && client == nil {
		err = kernel.Check()
	}
	if err != nil {
		return nil, err
	}
	command, err := host.StartCommand(o.Command, o.Console.Streams)
	if err != nil {
		return nil, notStarted(o.Command[0], err, o.Console)
	}
	signals, begun := o.awaitBegin()
	o.dropPrivileges(unix.CAP_KILL) // to pass signals on to a command that becomes another user's
	t, err := o.newTracing(signals, client, tracer.Options{Processes: []int{command.PID()}, Children: true})
	if err != nil {
		begun()
		command.Cancel()
		return nil, err
	}
	t.command, t.begun = command, begun
	python := host.OpenPython(o.Command) // if it is nil, its descriptor is -1
	defer python.Close()
	if t.own == nil {
		prepareBy(client, command.PID(), python, o.Command)
		return t, nil
	}
	_ = t.own.PrepareCommand(t.ctx, command.PID(), os.Getpid(), int(python.Fd())) // else its code is known a little later
	for _, path := range host.LikelyLibraries(o.Command) {
		if t.own.Prepare(path) == nil {
			break
		}
	}
	return t, nil
}

// prepareBy lets a service prepare for a command and the files that it will probably map. Without that, the first process
// on the host that maps the library is attached to late, and on a busy host the code of every one is known late: its first
// call stacks end early.
func prepareBy(client *service.Client, pid int, python *os.File, command []string) {
	_ = client.PrepareCommand(context.Background(), pid, python) // an older service does not
	seen := make(map[string]bool)
	for _, library := range host.LikelyLibraries(command) {
		folder := filepath.Dir(library)
		if seen[folder] {
			continue
		}
		seen[folder] = true
		for _, path := range host.Beside(library) { // the library, too
			if file, err := host.Open(path); err == nil {
				_ = client.PrepareFile(context.Background(), file) // else it is discovered when it is mapped
				file.Close()
			}
		}
	}
}

// dropPrivileges gives up what tracing does not need, except others.
func (o *Options) dropPrivileges(others ...int) {
	if !o.DropPrivileges || !kernel.MayTrace() {
		return
	}
	if err := kernel.DropPrivileges(o.Written, others...); err != nil {
		o.Console.warn(err.Error())
	}
}

// newTracing begins to trace, through a service unless client is nil.
func (o *Options) newTracing(signals chan os.Signal, client *service.Client, what tracer.Options) (*Tracing, error) {
	limiter := term.NewLimiter(o.Console.warn)
	t := &Tracing{o: o, limiter: limiter, Again: make(chan os.Signal, 1), signals: signals, begun: func() {}}
	BoundMemory()
	if client != nil {
		ordinary, err := newOrdinary(client, func(why string) {
			t.Failed = true
			o.Console.warn(why)
		}, what.Processes, what.Children, o.Stacks.ownersBy(client, o.Console.warn))
		if err != nil {
			return nil, err
		}
		t.engine = ordinary
	} else {
		what.Warn = limiter.Warn
		o.Stacks.Apply(&what)
		own, err := tracer.New(what)
		if err != nil {
			return nil, err
		}
		t.engine, t.own = own, own
	}
	t.ctx, t.Stop = context.WithCancel(context.Background())
	t.look = newLastLook(t.ctx, o)
	return t, nil
}

// notStarted warns why a command could not be started; the exit status is that of shells.
func notStarted(name string, err error, console Console) error {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		console.warn(name + ": no such command in the PATH" + changedBySudo() + ": give its path")
		return term.ExitStatus(127)
	case errors.Is(err, os.ErrNotExist):
		console.warn(name + ": no such command: check its path")
		return term.ExitStatus(127)
	case errors.Is(err, unix.EISDIR):
		console.warn(name + ": is a directory: name a program in it")
		return term.ExitStatus(126)
	case errors.Is(err, unix.ENOEXEC):
		console.warn(fmt.Sprintf("%s: is not a program, and does not begin with #!: name the program that runs it, such as python or sh", name))
		return term.ExitStatus(126)
	case errors.Is(err, os.ErrPermission):
		console.warn(fmt.Sprintf("%s: permission denied: `chmod +x` makes it executable, or name the program that runs it, such as python", name))
		return term.ExitStatus(126)
	}
	return err
}

// changedBySudo says that the PATH is not the user's.
func changedBySudo() string {
	if os.Getenv("SUDO_UID") == "" {
		return ""
	}
	return ", which sudo changes: run ttmem without sudo, which it asks itself for, or"
}

// listen makes the first signal end Run, even before Run begins, and passes on the second. One that
// comes during the last look ends only that.
func (t *Tracing) listen() {
	notify(t.signals)
	go func() {
		first := <-t.signals
		t.ctrlC.Store(first == unix.SIGINT)
		if first != unix.SIGINT {
			t.look.skip()
		}
		go t.end()
		again := <-t.signals
		if t.ctx.Err() == nil {
			t.look.skip()
			again = <-t.signals
		}
		t.Again <- again
	}()
}

// end ends Run after the last look. Calling it again skips that.
func (t *Tracing) end() {
	t.look.run(func(ctx context.Context) { _ = t.FindOwners(ctx, t.o.PIDs, false) })
	t.Stop()
}

// unlisten lets signals end ttmem again.
func (t *Tracing) unlisten() { signal.Stop(t.signals) }

// OfCommand reports whether this traces a command that was not started yet.
func (t *Tracing) OfCommand() bool { return t.command != nil }

// StackCounts returns the counts of its stacks; nil if it took none, or a service did.
func (t *Tracing) StackCounts() *memory.Stacks {
	if t.own == nil {
		return nil
	}
	return StackCounts(t.own)
}

// CommandPID returns the process id of a command that was not started yet.
func (t *Tracing) CommandPID() int { return t.command.PID() }

// Announce prints which processes are traced, and how to end tracing.
func (t *Tracing) Announce() {
	switch {
	case t.command != nil:
	case len(t.o.PIDs) == 0 && t.own == nil:
		term.Warn("tracing your processes that use tt-metal; Ctrl-C ends and reports")
	case len(t.o.PIDs) == 0:
		term.Warn("tracing every process that uses tt-metal; Ctrl-C ends and reports")
	default:
		term.Warn(fmt.Sprintf("tracing PID %s; Ctrl-C ends and reports", page.PIDs(t.o.PIDs)))
	}
}

// Run calls handle with events until the traced processes have ended, and pause between batches.
func (t *Tracing) Run(handle func(*event.Event), pause func()) error {
	defer t.Stop()
	if t.command != nil {
		return t.runCommand(handle, pause)
	}
	read := t.whenRead(func() {
		if t.o.Duration > 0 {
			time.AfterFunc(t.o.Duration, t.end)
		}
		if t.ready != nil {
			t.ready()
		}
	})
	checked, over := time.Now(), t.whenOver()
	err := t.engine.Run(t.ctx, handle, func() {
		pause()
		read()
		if len(t.o.PIDs) == 0 || time.Since(checked) < 50*time.Millisecond {
			return
		}
		checked = time.Now()
		for _, pid := range t.o.PIDs {
			if !host.Ended(pid) {
				return
			}
		}
		if over() { // all have ended
			t.Stop()
		}
	})
	if t.ctrlC.Load() {
		term.NewLine()
	}
	return err
}

// readingPatience is how long reading the memory of processes may take before it is reported.
const readingPatience = 500 * time.Millisecond

// whenRead calls then once the existing memory of processes has been read, and reports the
// reading if it takes long. The caller has to call the returned function from time to time.
func (t *Tracing) whenRead(then func()) func() {
	began, reported, done := time.Now(), false, false
	of := "processes"
	if len(t.o.PIDs) > 0 {
		of = "PID " + page.PIDs(t.o.PIDs)
	}
	return func() {
		switch {
		case done:
		case !t.Reading():
			done = true
			if reported {
				t.o.Console.reading(of, false)
			}
			then()
		case !reported && (t.o.Console.Doing != nil || time.Since(began) > readingPatience):
			reported = true
			t.o.Console.reading(of, true)
		}
	}
}

// endGrace is how long after the end of the processes events may come, and mappings, and mappedPatience how long what they
// mapped is read, which takes half a second for a library that ttmem does not know: see host.Patient.
const (
	endGrace       = 30 * time.Millisecond
	mappedPatience = 2 * time.Second
)

// whenOver returns a function to call from time to time once the processes have ended. It reports whether nothing more
// of them is to come.
func (t *Tracing) whenOver() func() bool {
	var grace, patience context.Context // they end by themselves
	return func() bool {
		if grace == nil {
			grace, _ = host.Patient(t.ctx, endGrace)
			patience, _ = host.Patient(t.ctx, mappedPatience)
		}
		return grace.Err() != nil && t.engine.Finish(patience.Err() != nil)
	}
}

func (t *Tracing) runCommand(handle func(*event.Event), pause func()) error {
	term.OutliveReaders() // the exit status must report the command's end
	stop := passSignals(t.command)
	t.begun()
	t.unlisten()
	status := make(chan int, 1)
	command := t.command
	if err := command.Go(); err != nil {
		return err
	}
	t.command = nil // nothing to cancel any more
	go func() {
		exit := command.Wait()
		t.listen() // signals are for ttmem now
		stop()
		status <- exit
	}()
	ended, over := false, t.whenOver()
	err := t.engine.Run(t.ctx, handle, func() {
		pause()
		select {
		case t.Exit = <-status:
			ended = true
		default:
		}
		// the command's last records are in the ring before it can be waited for
		if ended && over() {
			t.Stop()
		}
	})
	if !t.Discovered() {
		t.o.Console.warn("no tt-metal library was seen in the command or the processes that it started")
	}
	return err
}

// interrupt returns a function that ends Run from another goroutine: it signals a command to
// end.
func (t *Tracing) interrupt() func() {
	if command := t.command; command != nil {
		return func() { command.Signal(unix.SIGTERM) }
	}
	return t.Stop
}

// Close ends tracing, and a command that was not started.
func (t *Tracing) Close() {
	t.Stop()
	t.begun()
	if t.command != nil {
		t.command.Cancel()
	}
	t.engine.Close()
	t.limiter.End()
}

// canTrace checks that processes can be traced, by this process if byOwn, and run.
func canTrace(pids []int, byOwn bool) error {
	if err := flags.CheckPIDs(pids); err != nil {
		return err
	}
	if byOwn {
		if err := kernel.Check(); err != nil {
			return err
		}
	}
	for _, pid := range pids {
		if host.Ended(pid) {
			return fmt.Errorf("-p %d: no such process: `pgrep -af python` finds them", pid)
		}
		if process := host.ProcessOf(pid); process != pid {
			return fmt.Errorf("-p %d: a thread of process %d: give -p %d", pid, process, process)
		}
	}
	return nil
}

// areTraced checks that each process has loaded the library.
func areTraced(t *Tracing, pids []int) error {
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

// passSignals passes signals on to the command. Signals of the terminal go to the whole
// foreground group, including the command, and must not arrive twice.
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
