package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// A watched is what there is to say of events that were watched.
type watched struct {
	// of is where they are from: "model.ttmem", "PID 4242", "this host".
	of string
	// notes are what they lack, a line each.
	notes []string
	// others is that of a present.
	others string
	// failed is true where not all could be read.
	failed bool
	// exit is the exit status of the command that was run.
	exit int
	// endNs is when watching ended, or when a file was, CLOCK_MONOTONIC; 0 where that is
	// not known.
	endNs uint64
	// live is true where the processes go on, and were not watched to their end.
	live bool
}

// What watched.of is where it is of no file, command or process.
const (
	thisHost      = "this host"
	ownOnThisHost = "your processes on this host"
)

// in says that something is in what was watched.
func (w *watched) in() string { return placeIn(w.of) }

// placeIn says that something is in a place, such as a file or a host.
func placeIn(of string) string {
	switch of {
	case thisHost:
		return "on " + of
	case ownOnThisHost:
		return "by " + of
	}
	return "in " + of
}

// status is the exit status that follows: that of the command, or 1 where not all
// could be read; nil for success.
func (w *watched) status() error {
	switch {
	case w.exit != 0:
		return term.ExitStatus(w.exit)
	case w.failed:
		return term.ExitStatus(1)
	}
	return nil
}

// watch gives all events to handle, in the order of their times: those of a file, or
// what there is by now and what happens until the command ends, the duration is over
// or Ctrl-C, which is an error while a file is read. pause is called between batches.
func (o *sourceOptions) watch(handle func(*event.Event), pause func()) (*watched, error) {
	handle = o.ofPIDs(handle)
	if o.file != "" {
		r, err := openRecorded(o.file)
		if err != nil {
			return nil, err
		}
		defer r.close()
		r.quiet = o.beside.warn != nil
		if o.atEnd {
			if _, err := r.last(math.MaxUint64); err != nil {
				return nil, err
			}
		}
		return r.watch(o, handle, pause)
	}
	if len(o.command) > 0 {
		t, err := traceCommand(o.command, o.stacks, o.beside)
		if err != nil {
			return nil, err
		}
		return o.watchTracing(t, "the command", handle, pause)
	}
	var client *service.Client
	if len(o.stacks.markAt) == 0 { // for which it takes a tracer of one's own
		var err error
		if client, err = o.service(); err != nil {
			return nil, err
		}
	}
	if client != nil {
		defer client.Close()
		return o.watchService(client, handle, pause)
	}
	t, err := traceProcesses(o.pids, o.duration, o.stacks, o.expected, o.beside)
	if err != nil {
		return nil, err
	}
	of := thisHost
	if len(o.pids) > 0 {
		of = "PID " + page.PIDs(o.pids)
	}
	return o.watchTracing(t, of, handle, pause)
}

// ofPIDs lets through what is of the processes that were asked for, and of none.
func (o *sourceOptions) ofPIDs(handle func(*event.Event)) func(*event.Event) {
	if len(o.pids) == 0 {
		return handle
	}
	return func(e *event.Event) {
		if e.Kind == event.Checkpoint {
			e = aggregate.OfProcesses(e, o.pids)
		}
		if e != nil && (e.PID == 0 || slices.Contains(o.pids, e.PID)) {
			handle(e)
		}
	}
}

// applying brings the state up to each event, after those that it implies, and gives
// it to then. A free is complete: it tells what was freed.
func applying(s *aggregate.State, then func(*event.Event)) func(*event.Event) {
	return func(e *event.Event) {
		for implied := s.Implied(e); implied.Next(); {
			s.Complete(implied.Event())
			s.Apply(implied.Event())
			then(implied.Event())
		}
		s.Complete(e)
		s.Apply(e)
		then(e)
	}
}

// watchFile gives all events of a file to handle.
func watchFile(path string, handle func(*event.Event), pause func()) (*watched, error) {
	r, err := openRecorded(path)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.watch(&sourceOptions{}, handle, pause)
}

// watchEnd gives what makes the state at the end of a file to handle: the last checkpoint,
// where there is one, and what follows.
func watchEnd(path string, handle func(*event.Event)) (*watched, error) {
	o := sourceOptions{file: path, atEnd: true}
	return o.watch(handle, func() {})
}

// watch gives the events of a file to handle.
func (r *recorded) watch(o *sourceOptions, handle func(*event.Event), pause func()) (*watched, error) {
	ctx, stop := o.until(unix.SIGINT, unix.SIGTERM)
	defer stop()
	w := &watched{of: r.name}
	events, damage := r.play(ctx, handle, pause)
	w.endNs = r.over()
	switch {
	case ctx.Err() != nil:
		return nil, term.ErrInterrupted
	case damage != nil && events == 0:
		return nil, damage
	case damage != nil:
		w.notes = append(w.notes, damage.Error())
		w.failed = !errors.Is(damage, io.ErrUnexpectedEOF) // which is no damage: its writer was killed
	case !r.ended():
		w.notes = append(w.notes, r.name+" has no end: it is still being written, or its writer was killed, or its disk was full")
	}
	return w, nil
}

func (o *sourceOptions) watchTracing(t *tracing, of string, handle func(*event.Event), pause func()) (*watched, error) {
	defer t.close()
	mark := func(name string) error {
		t.Mark(name, os.Getuid())
		return nil
	}
	switch {
	case o.began == nil:
		t.announce()
	case o.expected:
		// What there was before is to be known when the first step begins.
		t.ready = func() { o.began(mark) }
	default:
		o.began(mark)
	}
	if o.ctx != nil {
		stop := context.AfterFunc(o.ctx, t.interrupt())
		defer stop()
	}
	w := &watched{of: of, live: t.command == nil}
	err := t.run(handle, pause)
	w.exit, w.failed, w.endNs = t.exit, t.failed, monotonicNow()
	return w, err
}

func (o *sourceOptions) watchService(client *service.Client, handle func(*event.Event), pause func()) (*watched, error) {
	ctx, stop := o.until(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	r, err := client.Stream(ctx)
	if err != nil {
		return nil, err
	}
	if o.began == nil {
		term.Warn("watching what the service of this host sees; Ctrl-C ends and reports")
	} else {
		o.began(func(name string) error { return client.Mark(ctx, name) })
	}
	w := &watched{of: thisHost, live: true}
	defer func() { w.endNs = monotonicNow() }()
	if os.Geteuid() != 0 {
		w.of = ownOnThisHost
	}
	var e event.Event
	for {
		err := r.Next(&e)
		switch {
		case ctx.Err() != nil:
			return w, nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			w.notes = append(w.notes, fmt.Sprintf("the ttmem service at %s has ended, or was too slow to tell", o.socket))
			w.failed = true
			return w, nil
		case err != nil:
			return w, fmt.Errorf("reading what the ttmem service at %s tells: %w", o.socket, err)
		}
		handle(&e)
		pause()
	}
}
