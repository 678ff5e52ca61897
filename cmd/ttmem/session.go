package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/aggregate"
	"ttmem/tracer"
	"ttmem/tracer/event"
)

// sessionOptions are the flags that run and attach share.
type sessionOptions struct {
	events  string
	json    bool
	stacks  stackOptions
	exports exportOptions
}

func (o *sessionOptions) register(c *cobra.Command) {
	c.Flags().StringVar(&o.events, "events", "", "write every event to `FILE`, one JSON object a line")
	c.Flags().BoolVar(&o.json, "json", false, "print the report as one line of JSON on standard output")
	_ = c.MarkFlagFilename("events")
	o.stacks.register(c)
	o.exports.register(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if o.events == "-" {
			return errors.New("--events -: name a file; /dev/stdout is standard output")
		}
		if err := o.stacks.check(c); err != nil {
			return err
		}
		return o.exports.check(c, o.events, o.json)
	}
}

// session is what run and attach do with the events that they trace.
type session struct {
	o      sessionOptions
	tracer *tracer.Tracer
	state  *aggregate.State
	events *eventFile // nil: nobody wants them
	export *exporter  // nil: nobody wants it
	failed bool       // something was promised and could not be done
}

func newSession(t *tracer.Tracer, o sessionOptions) (*session, error) {
	s := &session{o: o, tracer: t, state: aggregate.New()}
	if o.events != "" {
		f, err := createEventFile(o.events)
		if err != nil {
			return nil, err
		}
		s.events = f
	}
	x, err := newExporter(o.exports)
	if err != nil {
		return nil, err
	}
	s.export = x
	return s, nil
}

// close removes what was begun and will not be finished.
func (s *session) close() { s.export.close() }

// trace runs until the context is done; pause is called between batches.
func (s *session) trace(ctx context.Context, pause func()) error {
	return s.tracer.Run(ctx, s.handle, func() {
		s.flush()
		pause()
	})
}

// handle takes an event, after those that it implies.
func (s *session) handle(e *event.Event) {
	for _, implied := range s.state.Implied(e) {
		s.apply(&implied)
	}
	s.apply(e)
}

func (s *session) apply(e *event.Event) {
	s.state.Complete(e)
	s.state.Apply(e)
	if s.events != nil {
		s.events.add(e)
		if s.events.full() {
			s.flush()
		}
	}
	if s.export != nil {
		s.export.profile.Apply(e)
	}
}

func (s *session) flush() {
	if s.events == nil {
		return
	}
	if err := s.events.flush(); err != nil {
		warn(fmt.Sprintf("%v; tracing goes on without --events", err))
		s.failed = true
		s.events = nil
	}
}

// report prints what was found, and writes and closes what is open.
func (s *session) report() error {
	if s.events != nil {
		if err := s.events.close(); err != nil {
			warn(err.Error())
			s.failed = true
		}
	}
	err := s.print()
	if s.export != nil && !s.export.write() {
		s.failed = true
	}
	return err
}

func (s *session) print() error {
	snapshot := s.state.Snapshot()
	snapshot.Stacks = stackCounts(s.tracer)
	if s.o.json {
		return json.NewEncoder(os.Stdout).Encode(snapshot)
	}
	return writeReport(os.Stderr, snapshot, reportOptionsFor(os.Stderr))
}

// reportOptionsFor fits the report to where it is printed.
func reportOptionsFor(f *os.File) reportOptions {
	o := reportOptions{Width: 80, Unicode: utf8Locale()}
	if !term.IsTerminal(int(f.Fd())) {
		return o
	}
	o.Color = os.Getenv("NO_COLOR") == ""
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col >= 40 {
		o.Width = min(int(size.Col), 120)
	}
	return o
}

// warn tells the user something in a line of its own.
func warn(text string) { fmt.Fprintf(os.Stderr, "ttmem: %s\n", text) }

// utf8Locale reports whether the user's terminal shows more than ASCII.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
