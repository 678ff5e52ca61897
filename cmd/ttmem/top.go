package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/internal/top"
	"ttmem/cmd/ttmem/internal/top/feed"
	"ttmem/tracer/host"
)

// topOptions select the contents of the view, and its refresh interval.
type topOptions struct {
	source   source.Options
	rules    string
	interval time.Duration
	once     bool
	utc      bool
	format   term.Format
}

// onceColumns is the width of --once in a file.
const onceColumns = 100

// The allowed refresh intervals.
const leastInterval, mostInterval = 100 * time.Millisecond, time.Hour

func newTop() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top [FILE | -- COMMAND [ARG…]]",
		Short: "Show live how full each chip is, and what uses most",
		Long: `Shows how full each chip is, its processes, and the call sites with the most memory. Press ? for
keys.

FILE is a recording. It opens at its story (docs/top.md); ← and → move in time. COMMAND is run and
traced; press o for its output. When it ends, the view stays at its last state; quitting the view
terminates it. Without either, the view shows the host's service (ttmem serve) or, for root, the
whole host. docs/top.md explains the view.`,
		Example: `  ttmem top                             live, from ttmem serve
  ttmem top -p 4242
  ttmem top -- python model.py
  ttmem top model.ttmem                 a recording
  ttmem top --once | head -n 20`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.source.Check(c, args); err != nil {
				return err
			}
			o.rules, o.format, o.utc = flags.RulesFile(c), flags.Format(c), flags.WantsUTC(c)
			return showTop(&o)
		},
	}
	o.source.Host = true
	o.source.RegisterRun(c)
	flags.Interval(c, &o.interval, time.Second)
	c.Flags().BoolVar(&o.once, "once", false, "print one frame and exit")
	flags.Takes(c, flags.Color, flags.Rules, flags.UTC)
	return c
}

func showTop(o *topOptions) error {
	if o.interval < leastInterval || o.interval > mostInterval {
		return fmt.Errorf("--interval %v: choose from 100ms to 1h", o.interval)
	}
	view := top.Options{
		NowNs: host.Now, Interval: o.interval,
		Color: o.format.Colors(os.Stdout), ASCII: !term.UTF8(), Output: len(o.source.Command) > 0,
	}
	if o.source.File != "" {
		view.NowNs = func() uint64 { return 0 }
	}
	rules, err := flags.ReadRules(o.rules)
	if err != nil {
		return err
	}
	view.Rules = rules
	if o.once {
		return topOnce(o, view)
	}
	if !term.IsTerminal(os.Stdout) {
		return errors.New("standard output is not a terminal: ttmem top --once prints one frame")
	}
	if t := os.Getenv("TERM"); t == "" || t == "dumb" {
		return fmt.Errorf("TERM=%s cannot show the view: set TERM to the type of your terminal, or print one frame with --once", t)
	}
	return topLive(o, view)
}

// topOnce prints one frame.
func topOnce(o *topOptions, view top.Options) error {
	if len(o.source.Command) > 0 {
		return fmt.Errorf("--once runs no command: ttmem run -- %s traces one and reports", strings.Join(o.source.Command, " "))
	}
	summary, err := o.onceSource(&view)
	if err != nil {
		return err
	}
	if o.utc { // the clock of a pipe is known now
		view.Clock = o.source.Clock()
	}
	plain := o.format.Color == term.Never || !view.Color && !term.IsTerminal(os.Stdout)
	rows := term.Rows(os.Stdout)
	if rows > 0 {
		rows = max(1, rows-2) // the command above it and the next prompt stay on the screen
	}
	if err := top.Once(os.Stdout, view, cmp.Or(term.Columns(os.Stdout), onceColumns), rows, plain); err != nil {
		return fmt.Errorf("writing the frame: %w", host.WithoutPath(err))
	}
	return summary.Finish(nil)
}

// seekable reports whether the source is a file that can be read at any moment.
func (o *topOptions) seekable() bool {
	return o.source.File != "" && source.ReadOnce(o.source.File) == nil
}

// onceSource sets the source of a view that is printed once.
func (o *topOptions) onceSource(view *top.Options) (*source.Summary, error) {
	o.source.Owners = true
	if o.seekable() {
		return feed.OpenRecording(&o.source, view)
	}
	p, err := o.source.Present(nil).StateAt(moment.Moment{Kind: moment.End}, func(*source.State, moment.Regions) {})
	if err != nil {
		return nil, err
	}
	if err := p.Select(o.source.PIDs); err != nil {
		return nil, cmp.Or(o.source.Missing(), err)
	}
	live := top.NewLive(p.Of)
	live.Handle(p.Checkpoint())
	live.OwnOnly(p.Others)
	if p.Chips != nil {
		live.Chips(p.Chips, p.NowNs)
	}
	if i := slices.Index(p.Notes, page.StillReading); i >= 0 { // the frame says so itself
		live.Unread(true)
		p.Notes = slices.Delete(p.Notes, i, i+1)
	}
	view.Source = live
	view.NowNs = func() uint64 { return p.NowNs }
	return &p.Summary, nil
}

// topLive shows the view until the user quits.
func topLive(o *topOptions, view top.Options) error {
	if o.utc {
		view.Clock = o.source.Clock()
		if !view.Clock.Known() {
			return errors.New("--utc: the times of a pipe are known only after reading it: add --once, or leave out --utc")
		}
	}
	in, err := terminalInput()
	if err != nil {
		return err
	}
	defer in.Close()
	if o.seekable() {
		return topFile(o, view, in)
	}
	of := cmp.Or(o.source.File, o.source.Place())
	if len(o.source.Command) > 0 {
		of = page.ShortCommand(strings.Join(o.source.Command, " "))
	}
	live := top.NewLive(of)
	if len(o.source.Command) > 0 {
		live.KeepLast()
	}
	output, err := feed.NewOutput(live, &o.source)
	if err != nil {
		return err
	}
	o.source.Console.Warn, o.source.Console.Doing = live.Note, live.Doing
	// the view's notes are printed after the terminal is free again
	defer func() {
		output.Close()
		for _, note := range live.Notes() {
			term.Warn(note)
		}
		feed.PrintOutput(live)
	}()

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	quit := make(chan struct{})
	view.Quit = quit

	w := feed.Start(o.source, live)
	view.Source = w
	select {
	case <-w.Began:
	case <-w.Done:
		if w.Err != nil {
			return w.Err
		}
	case by := <-signals:
		w.Stop()
		return term.ExitStatus(128 + int(by.(unix.Signal)))
	}
	ended := make(chan error, 1) // what the signal that ends the view means
	go func() {
		ended <- endedBy(<-signals)
		close(quit)
	}()
	err = top.Run(in, os.Stdout, view)
	stopped := w.Stop()
	switch {
	case err != nil:
		return fmt.Errorf("showing the view: %w", err)
	case !stopped:
		return errors.New("the command ignored SIGTERM and is still running, untraced")
	case len(ended) > 0 && len(o.source.Command) == 0:
		return <-ended
	case errors.Is(w.Err, term.ErrInterrupted): // the user quit the view
		return nil
	case w.Err != nil:
		return w.Err
	}
	return w.Status
}

// endedBy returns the exit status after a signal ended the view; nil after Ctrl-C, which quits it.
func endedBy(by os.Signal) error {
	if by == unix.SIGINT {
		return nil
	}
	return term.ExitStatus(128 + int(by.(unix.Signal)))
}

// topFile shows the moments of a recording until the user quits.
func topFile(o *topOptions, view top.Options, in *os.File) error {
	summary, err := feed.OpenRecording(&o.source, &view)
	if err != nil {
		return err
	}
	signals, quit := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go func() {
		ended <- endedBy(<-signals)
		close(quit)
	}()
	view.Quit = quit
	if err := top.Run(in, os.Stdout, view); err != nil {
		return fmt.Errorf("showing the view: %w", err)
	}
	if len(ended) > 0 {
		return errors.Join(summary.Finish(nil), <-ended)
	}
	return summary.Finish(nil)
}

// terminalInput is the source of keys.
func terminalInput() (*os.File, error) {
	if term.IsTerminal(os.Stdin) {
		fd, err := unix.Dup(int(os.Stdin.Fd()))
		if err == nil {
			unix.CloseOnExec(fd)
			return os.NewFile(uintptr(fd), "/dev/stdin"), nil
		}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, errors.New("no terminal to read keys from: ttmem top --once prints one frame")
	}
	return tty, nil
}
