package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/top"
	"ttmem/tracer/event"
)

// topOptions say what is looked at, and how often.
type topOptions struct {
	source  sourceOptions
	rules   string
	seconds float64
	once    bool
	n       int
}

func newTop() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top [FILE | -- COMMAND [ARG…]]",
		Short: "Show live how full each chip is, and who holds most",
		Long: `Shows on the terminal, and keeps up to date: a bar for each chip and region with what
is used, the peak and the capacity; the processes; and what holds most, by call stack,
operation, component, file, type, size, process or chip. The keys are told by ?.

It looks at what the service of this host sees (ttmem serve) or, where none runs, at all
processes of the host, which needs root. FILE is a recording, of which the end is shown.
COMMAND is run and traced from its first allocation; its input is empty, and what it
writes is shown by the key o. To quit ends the command.`,
		Example: `  ttmem top                             # what ttmem serve sees
  sudo ttmem top -p 4242
  sudo ttmem top -- python model.py
  ttmem top model.ttmem
  ttmem top --rules model.rules         # with components of a model
  ttmem top --once | head -n 20`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.source.checkWatch(c, args); err != nil {
				return err
			}
			return showTop(&o)
		},
	}
	o.source.register(c)
	o.source.stacks.register(c)
	f := c.Flags()
	f.Float64VarP(&o.seconds, "interval", "w", 1, "look every `SECONDS`")
	f.BoolVar(&o.once, "once", false, "print one frame and end")
	f.IntVarP(&o.n, "limit", "n", 20, "print at most `N` holders with --once")
	f.StringVar(&o.rules, "rules", "", "name components of the model by the rules in `FILE`")
	for _, flag := range []string{"interval", "limit"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = c.MarkFlagFilename("rules")
	return c
}

func showTop(o *topOptions) error {
	if !(o.seconds >= 0.1 && o.seconds <= 3600) {
		return fmt.Errorf("-w %v: between 0.1 and 3600 seconds", o.seconds)
	}
	if o.n < 1 {
		return fmt.Errorf("-n %d: at least one holder is listed", o.n)
	}
	view := top.Options{
		NowNs: monotonicNow, Interval: time.Duration(o.seconds * float64(time.Second)),
		Color: os.Getenv("NO_COLOR") == "", ASCII: !utf8Locale(), Output: len(o.source.command) > 0,
	}
	if o.source.file != "" {
		view.NowNs = func() uint64 { return 0 }
	}
	if o.rules != "" {
		rules, err := readRules(o.rules)
		if err != nil {
			return err
		}
		view.Rules = rules
	}
	if o.once {
		return topOnce(o, view)
	}
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return errors.New("standard output is no terminal: ttmem top --once prints one frame")
	}
	if t := os.Getenv("TERM"); t == "" || t == "dumb" {
		return fmt.Errorf("TERM=%s cannot show this: set TERM to what the terminal is, or print one frame with --once", t)
	}
	return topLive(o, view)
}

func readRules(path string) (*aggregate.Rules, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--rules %s: %w", path, pathless(err))
	}
	defer f.Close()
	rules, err := aggregate.ReadRules(path, f)
	if err != nil {
		return nil, fmt.Errorf("--rules %w", err)
	}
	return rules, nil
}

// topOnce prints one frame of what there is.
func topOnce(o *topOptions, view top.Options) error {
	if len(o.source.command) > 0 {
		return fmt.Errorf("--once is of what runs already: ttmem run -- %s traces a command and reports", strings.Join(o.source.command, " "))
	}
	p, err := o.source.read()
	if err != nil {
		return err
	}
	live := top.NewLive(p.of)
	for e := range p.Checkpoint() {
		live.Handle(e)
	}
	view.Source = live
	view.NowNs = func() uint64 { return p.nowNs }
	columns, terminal := 100, term.IsTerminal(int(os.Stdout.Fd()))
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		columns = int(size.Col)
	}
	if err := top.Once(os.Stdout, view, columns, o.n, !terminal); err != nil {
		return fmt.Errorf("writing the frame: %w", pathless(err))
	}
	for _, note := range p.notes {
		warn(note)
	}
	if p.failed {
		return exitStatus(1)
	}
	return nil
}

// topLive shows the view until the user quits.
func topLive(o *topOptions, view top.Options) error {
	in, err := terminalInput()
	if err != nil {
		return err
	}
	defer in.Close()
	screen := os.Stdout
	of := "this host"
	switch {
	case o.source.file != "":
		of = o.source.file
	case len(o.source.command) > 0:
		of = shortCommand(strings.Join(o.source.command, " "))
	case len(o.source.pids) > 0:
		of = "PID " + listPIDs(o.source.pids)
	}
	live := top.NewLive(of)
	w := newTopWatch(live)
	view.Source = w
	streams, err := takeStreams(live, view.Output)
	if err != nil {
		return err
	}
	// what was said meanwhile is told when there is a screen for it again
	defer func() {
		streams.giveBack()
		for _, note := range live.Notes() {
			warn(note)
		}
		tellOutput(live)
	}()

	// All that ends watching is a signal, also that the user quits, as it is to reach
	// the command too.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	quit := make(chan struct{})
	view.Quit = quit

	w.start(o)
	select {
	case <-w.began:
	case <-w.done:
		if w.err != nil {
			return w.err
		}
	case <-signals:
		w.end()
		return exitStatus(130)
	}
	go func() {
		<-signals
		close(quit)
	}()
	err = top.Run(in, screen, view)
	ended := w.end()
	switch {
	case err != nil:
		return fmt.Errorf("showing the view: %w", err)
	case !ended:
		return errors.New("the command does not end: it was asked to, and goes on without ttmem")
	case w.err != nil:
		return w.err
	}
	return w.status
}

// terminalInput is where keys come from.
func terminalInput() (*os.File, error) {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		fd, err := unix.Dup(int(os.Stdin.Fd()))
		if err == nil {
			unix.CloseOnExec(fd)
			return os.NewFile(uintptr(fd), "/dev/stdin"), nil
		}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, errors.New("there is no terminal that keys could come from: ttmem top --once prints one frame")
	}
	return tty, nil
}

// topWatch is the watching beside the view.
type topWatch struct {
	*top.Live
	began, done chan struct{}
	// mark names a moment among the events; nil before they come.
	mark        func(name string) error
	err, status error
}

func newTopWatch(live *top.Live) *topWatch {
	return &topWatch{Live: live, began: make(chan struct{}), done: make(chan struct{})}
}

// Mark sets the mark of the view, and one of its name for all who follow the service.
func (w *topWatch) Mark() {
	w.Live.Mark()
	if w.mark == nil {
		return
	}
	go func() {
		if err := w.mark("top " + time.Now().Format(time.TimeOnly)); err != nil {
			w.Note("the mark is of this view alone: " + err.Error())
		}
	}()
}

// start begins to bring what is live up to date.
func (w *topWatch) start(o *topOptions) {
	live, started := w.Live, false
	begin := func() {
		if !started {
			started = true
			close(w.began)
		}
	}
	o.source.began = func(mark func(string) error) {
		w.mark = mark
		begin()
	}
	if o.source.file != "" {
		live.Doing("reading")
	}
	go func() {
		defer close(w.done)
		watched, err := o.source.watch(func(e *event.Event) {
			begin()
			live.Handle(e)
		}, func() {})
		why := "ended"
		switch {
		case err != nil:
			w.err, why = err, err.Error()
		case o.source.file != "":
			why = "its end"
		case len(o.source.command) > 0:
			why = fmt.Sprintf("ended with status %d", watched.exit)
		}
		if watched != nil {
			w.status = watched.status()
			for _, note := range watched.notes {
				live.Note(note)
			}
		}
		live.End(why)
	}()
}

// endPatience is how long a command may take to end that was asked to.
const endPatience = 5 * time.Second

// end ends watching, and reports whether it has.
func (w *topWatch) end() bool {
	select {
	case <-w.done:
		return true
	default:
	}
	_ = unix.Kill(os.Getpid(), unix.SIGTERM) // to those who watch, who pass it on to a command
	select {
	case <-w.done:
		return true
	case <-time.After(endPatience):
		return false
	}
}

// takenStreams are the standard streams while the screen is not theirs.
type takenStreams struct {
	in, out, err *os.File
	null, write  *os.File
	copied       chan struct{}
}

// takeStreams has what anybody writes to the standard streams go to the view: what a
// command writes, whose streams they are, and ttmem's own warnings.
func takeStreams(live *top.Live, ofCommand bool) (*takenStreams, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	t := &takenStreams{os.Stdin, os.Stdout, os.Stderr, null, write, make(chan struct{})}
	os.Stdin, os.Stdout, os.Stderr = null, write, write
	go func() {
		defer close(t.copied)
		defer read.Close()
		if ofCommand {
			_, _ = io.Copy(live, read)
			return
		}
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			live.Note(strings.TrimPrefix(lines.Text(), "ttmem: "))
		}
	}()
	return t, nil
}

// giveBack gives the streams back, once; what was written to them is with the view then,
// but for what is written by processes that a command has left.
func (t *takenStreams) giveBack() {
	if t.write == nil {
		return
	}
	os.Stdin, os.Stdout, os.Stderr = t.in, t.out, t.err
	t.write.Close()
	t.null.Close()
	t.write = nil
	select {
	case <-t.copied:
	case <-time.After(200 * time.Millisecond):
	}
}

// toldLines is how much of a command's output is told after the view.
const toldLines = 20

// tellOutput prints what the command wrote last, which the view covered.
func tellOutput(live *top.Live) {
	lines := live.Present(0).Output
	if n := len(lines); n > toldLines {
		warn(fmt.Sprintf("the last %d lines that the command wrote:", toldLines))
		lines = lines[n-toldLines:]
	}
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, line)
	}
}
