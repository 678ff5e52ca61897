package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// sessionOptions say what is written of a stream of events.
type sessionOptions struct {
	output  outputOptions
	stacks  source.Stacks
	record  recordOptions
	exports output.ExportOptions
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
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		o.output.json = flags.WantsJSON(c)
		if o.output.events == "-" {
			return errors.New("--events -: name a file; /dev/stdout is standard output")
		}
		return o.exports.Check(c, o.output.events, o.output.json)
	}
}

// session writes a stream of events of a tracer.
type session struct {
	o      sessionOptions
	state  *aggregate.State
	events *output.Events   // nil: not requested
	record *recorder        // nil: not requested
	export *output.Exporter // nil: not requested
	// stacks counts the call stacks that were taken; nil if none were
	stacks func() *memory.Stacks
	failed bool // some output could not be written
	// useless ends a trace whose recording failed; nil if it goes on
	useless func()
}

// newSession begins the output that the options name; the session is to be closed.
func newSession(o sessionOptions, stacks func() *memory.Stacks) (_ *session, err error) {
	s := &session{o: o, state: aggregate.New(), stacks: stacks}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.record, err = newRecorder(o.record, s.state); err != nil {
		return nil, err
	}
	if o.output.events != "" {
		if s.events, err = output.CreateEvents(o.output.events, o.output.private); err != nil {
			return nil, err
		}
	}
	if s.export, err = output.NewExporter(o.exports); s.export != nil {
		s.state.KeepSites()
	}
	return s, err
}

// traceSession is a session of a tracer.
func traceSession(t *source.Tracing, o sessionOptions) (*session, error) {
	s, err := newSession(o, func() *memory.Stacks { return source.StackCounts(t.Tracer) })
	if err == nil {
		s.state.Begin(source.MonotonicNow())
	}
	if err == nil && !t.OfCommand() {
		s.useless = t.Stop
	}
	return s, err
}

// close removes files that were begun and not finished.
func (s *session) close() { s.export.Close() }

// handle takes an event. Events are written after those that they imply.
func (s *session) handle(e *event.Event) {
	if s.events != nil {
		for implied := range s.state.Implied(e) {
			s.apply(implied)
		}
	}
	s.apply(e)
	if s.record != nil {
		s.record.add(e)
	}
	if s.events != nil && s.events.Full() || s.record != nil && s.record.full() {
		s.flush()
	}
}

func (s *session) apply(e *event.Event) {
	s.state.Complete(e)
	s.state.Apply(e)
	if s.events != nil {
		s.events.Add(e)
	}
}

func (s *session) flush() {
	if s.events != nil {
		if err := s.events.Flush(); err != nil {
			term.Warn(fmt.Sprintf("%v; tracing goes on without --events", err))
			s.failed = true
			s.events = nil
		}
	}
	if s.record != nil {
		if err := s.record.flush(); err != nil {
			s.failed = true
			s.record = nil
			if s.useless != nil {
				term.Warn(err.Error())
				s.useless()
				return
			}
			term.Warn(fmt.Sprintf("%v; the command goes on and is not recorded", err))
		}
	}
}

// report prints the report, and finishes the files.
func (s *session) report() error {
	if s.events != nil {
		if err := s.events.Close(); err != nil {
			term.Warn(err.Error())
			s.failed = true
		}
	}
	s.state.Advance(source.MonotonicNow())
	snapshot := s.state.WithHolders(s.state.Snapshot())
	snapshot.Stacks = s.stacks()
	if s.record != nil {
		if err := s.record.close(snapshot); err != nil {
			term.Warn(err.Error())
			s.failed = true
		}
	}
	err := s.print(snapshot)
	if s.export != nil && !s.export.Write(s.state.Profile()) {
		s.failed = true
	}
	return err
}

func (s *session) print(snapshot *memory.Snapshot) error {
	if s.o.record.path != "" {
		return nil // the recording has it
	}
	return printReport(os.Stderr, snapshot, s.o.output.json, report.Options{})
}
