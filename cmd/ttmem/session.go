package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// sessionOptions say what is written of a stream of events.
type sessionOptions struct {
	source  source.Options
	output  outputOptions
	record  recordOptions
	exports output.ExportOptions
	pid     int // the process that is reported; 0: all
	utc     bool
}

// outputOptions are the flags of output besides the report.
type outputOptions struct {
	events string
	json   bool
	// private makes files that only their owner can read: they have the events of all users
	private bool
}

func (o *outputOptions) register(c *cobra.Command) {
	c.Flags().StringVar(&o.events, "events", "", "write every event to `FILE`, one JSON object a line")
	flags.Takes(c, flags.JSON)
	_ = c.MarkFlagFilename("events", "jsonl")
}

// register makes the flags of every command that ends with a report, and checks them and
// those of exports.
func (o *sessionOptions) register(c *cobra.Command) {
	o.output.register(c)
	flags.Takes(c, flags.Color)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return o.check(c) }
}

func (o *sessionOptions) check(c *cobra.Command) error {
	o.output.json = flags.WantsJSON(c)
	if o.output.events == "-" {
		return errors.New("--events -: name a file; /dev/stdout is standard output")
	}
	return o.exports.Check(c, o.output.json, output.ExportTarget{Flag: "--events", Path: o.output.events},
		output.ExportTarget{Flag: "-o", Path: o.record.path})
}

// registerTrace makes the flags of commands that trace, and checks them.
func (o *sessionOptions) registerTrace(c *cobra.Command) {
	o.register(c)
	o.record.registerFile(c)
	o.source.Stacks.RegisterMore(c)
	o.source.Stacks.RegisterMarkAt(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := o.source.Stacks.Check(); err != nil {
			return err
		}
		if err := o.record.check(c); err != nil {
			return err
		}
		return o.check(c)
	}
}

// of is the selected part of the snapshot from a place.
func (o *sessionOptions) of(snapshot *memory.Snapshot, from string) (*memory.Snapshot, error) {
	if o.pid == 0 {
		return snapshot, nil
	}
	one := analyze.ForProcess(snapshot, o.pid)
	if one == nil {
		return nil, fmt.Errorf("-p %d: no such process in %s; `ttmem report` without -p lists the processes", o.pid, from)
	}
	return one, nil
}

// session writes a stream of events.
type session struct {
	o     sessionOptions
	state *aggregate.State
	// profile has the call sites that are exported: it is the state, or that of one process.
	profile *aggregate.State
	// complete applies an event to the state after those that it implies.
	complete func(*event.Event)
	events   *output.Events   // nil: not requested
	record   *recorder        // nil: not requested
	export   *output.Exporter // nil: not requested
	clock    page.Clock       // that of the events
	failed   bool             // some output could not be written
	// useless ends a trace whose recording failed; nil if it goes on
	useless func()
}

// newSession begins the output that the options name; the session is to be closed.
func newSession(o sessionOptions) (_ *session, err error) {
	s := &session{o: o, state: aggregate.New()}
	s.profile = s.state
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var only source.Options
	if o.pid != 0 {
		only.PIDs, s.profile = []int{o.pid}, aggregate.New()
	}
	s.complete = source.Completed(s.state, only.Selected(s.add))
	s.record, err = newRecorder(o.record, s.state)
	switch {
	case err != nil && !o.record.unnamed:
		return nil, err
	case err != nil:
		term.Warn(fmt.Sprintf("nothing is recorded: %v with -o", err))
		err = nil
	}
	switch {
	case o.output.events == "":
	case o.source.File != "":
		s.events, err = output.CopyEvents(o.output.events)
	default:
		s.events, err = output.CreateEvents(o.output.events, o.output.private)
	}
	if err != nil {
		return nil, err
	}
	s.setClock(s.o.source.Clock())
	if s.export, err = output.NewExporter(o.exports); s.export != nil {
		s.profile.KeepSites()
	}
	return s, err
}

// close removes files that were begun and not finished.
func (s *session) close() {
	s.events.Discard()
	s.export.Close()
}

// setClock sets the clock of the events.
func (s *session) setClock(c page.Clock) {
	s.clock = c
	if s.events != nil {
		s.events.Clock = c
	}
}

// handle takes an event.
func (s *session) handle(e *event.Event) {
	if s.events == nil && s.profile == s.state { // which need no implied events
		s.state.Complete(e)
		s.state.Apply(e)
	} else {
		s.complete(e)
	}
	if s.record != nil {
		s.record.add(e)
	}
	if s.events != nil && s.events.Full() || s.record != nil && s.record.full() {
		s.flush()
	}
}

// add takes a selected event that was applied to the state.
func (s *session) add(e *event.Event) {
	if s.events != nil {
		s.events.Add(e)
	}
	if s.profile != s.state {
		s.profile.Apply(e)
	}
}

func (s *session) flush() {
	if s.events != nil {
		if err := s.events.Flush(); err != nil {
			term.Warn(fmt.Sprintf("%v; the rest goes on without --events", err))
			s.failed = true
			s.events = nil
		}
	}
	if s.record != nil {
		if err := s.record.flush(); err != nil {
			s.unrecorded()
			if s.useless != nil {
				term.Warn(err.Error())
				s.useless()
				return
			}
			term.Warn(fmt.Sprintf("%v; tracing goes on and is not recorded", err))
		}
	}
}

// unrecorded notes that the recording failed, which is a failure if the user named it.
func (s *session) unrecorded() {
	s.failed = s.failed || !s.o.record.unnamed
	s.record = nil
}

// end finishes the files, and prints the report up to a time.
func (s *session) end(untilNs uint64, stacks *memory.Stacks, to *os.File, how report.Options) error {
	finished := func(err error) {
		if err != nil {
			term.Warn(err.Error())
			s.failed = true
		}
	}
	if s.events != nil {
		finished(s.events.Close())
	}
	s.state.Advance(untilNs)
	snapshot := s.state.WithHolders(s.state.Snapshot())
	snapshot.Stacks = stacks
	if s.record != nil {
		if err := s.record.close(snapshot); err != nil {
			term.Warn(err.Error())
			s.unrecorded()
		}
	}
	snapshot, err := s.o.of(snapshot, s.o.source.File)
	if err != nil {
		return err
	}
	how.State, how.Clock = s.profile, s.clock
	err = printReport(to, snapshot, s.o.output.json, how)
	if s.export != nil && !s.export.Write(s.profile.Profile()) {
		s.failed = true
	}
	if s.record != nil {
		s.recorded(snapshot)
	}
	return err
}

// recorded says what the recording has, and which commands to type next.
func (s *session) recorded(snapshot *memory.Snapshot) {
	seen := len(snapshot.Processes) > 0
	if !seen && s.o.record.unnamed {
		os.Remove(s.record.path)
		return
	}
	term.Warn(s.record.summary(seen))
	if !seen || s.o.output.json || !s.record.isFile() {
		return
	}
	list, columns := s.record.next(snapshot), 0
	for _, one := range list {
		columns = max(columns, page.Width(one[0]))
	}
	for _, one := range list {
		fmt.Fprintf(os.Stderr, "  ttmem %s  # %s\n", page.Left(page.Clean(one[0]), columns), one[1])
	}
}

// traced is the program that is traced, or the first of several, and its process; 0: all of them.
func (o *sessionOptions) traced(t *source.Tracing) (program string, pid int) {
	switch {
	case len(o.source.Command) > 0:
		return programName(o.source.Command), t.CommandPID()
	case len(o.source.PIDs) > 0:
		pid = o.source.PIDs[0]
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return strings.TrimSpace(string(comm)), pid
	}
	return "", 0
}

// giveUp ends ttmem at once when it gets a signal.
func (s *session) giveUp(again <-chan os.Signal) {
	status := 128 + int((<-again).(unix.Signal))
	time.AfterFunc(time.Second, func() { os.Exit(status) }) // also if nobody reads the message
	s.export.Close()
	term.NewLine()
	term.Warn("interrupted again: ended at once; the rest is neither reported nor written")
	os.Exit(status)
}

// trace writes what is traced, until it ends. The error has the exit status of a command, or
// failure where ttmem itself failed.
func trace(o sessionOptions, failure int) error {
	if err := o.source.CheckMarkAt(); err != nil {
		return err
	}
	t, err := o.source.Trace()
	if err != nil {
		return err
	}
	defer t.Close()
	o.record.choose(o.traced(t))
	s, err := newSession(o)
	if err != nil {
		return err
	}
	defer s.close()
	go s.giveUp(t.Again)
	s.state.Begin(source.MonotonicNow())
	if !t.OfCommand() && !o.record.unnamed {
		s.useless = t.Stop
	}
	t.Announce()
	err = t.Run(s.handle, s.flush)
	err = errors.Join(err, s.end(source.MonotonicNow(), source.StackCounts(t.Tracer), os.Stderr, report.Options{}))
	switch {
	case t.Exit != 0 && err != nil:
		term.Warn(err.Error())
		fallthrough
	case t.Exit != 0:
		return term.ExitStatus(t.Exit)
	case err == nil && (s.failed || t.Failed):
		return term.ExitStatus(failure)
	}
	return err
}
