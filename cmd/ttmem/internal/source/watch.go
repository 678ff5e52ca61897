package source

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A Summary describes events that were watched: their origin, and their gaps.
type Summary struct {
	// Of is their origin: "model.ttmem", "PID 4242", "this host".
	Of string
	// Summary is that of the file, if one was read; else EndNs is when watching ended.
	moment.Summary
	// Others describes the processes of other users, if the user sees only their own; "" if all
	// are visible.
	Others string
	// Chips are the chips with the totals of all users, if the user sees only their own
	// processes.
	Chips []memory.Device
	// Exit is the exit status of the command that was run.
	Exit int
	// BeganNs is when watching began, CLOCK_MONOTONIC; 0 for a file.
	BeganNs uint64
	// Live is true if the processes continue, and were not watched to their end.
	Live bool
}

// Values of Summary.Of other than a file, a command or a process.
const (
	thisHost      = "this host"
	ownOnThisHost = "your processes on this host"
)

// In returns the origin with a preposition: "in model.ttmem".
func (s *Summary) In() string { return In(s.Of) }

// In returns a place, such as a file or a host, with its preposition.
func In(of string) string {
	switch of {
	case thisHost:
		return "on " + of
	case ownOnThisHost:
		return "by " + of
	}
	return "in " + of
}

// Status returns the exit status: that of the command, or 1 if a part could not be read; nil for
// success.
func (s *Summary) Status() error {
	switch {
	case s.Exit != 0:
		return term.ExitStatus(s.Exit)
	case s.Failed:
		return term.ExitStatus(1)
	}
	return nil
}

// Finish prints missing parts and doubts, and returns the exit status.
func (s *Summary) Finish(doubts []string) error {
	for _, note := range slices.Concat(s.Notes, doubts) {
		term.Warn(note)
	}
	return s.Status()
}

// UntilNs returns the time up to which no event is missing.
func (s *Summary) UntilNs() uint64 {
	if s.Live {
		return max(s.EndNs, host.Now()) // nothing happened since
	}
	return s.EndNs
}

// Watch calls handle with all events in order of time: those of a file; or the existing
// allocations and then events until the command ends, the duration is over, or Ctrl-C. While a
// file is read, Ctrl-C is an error.
func (o *Options) Watch(handle func(*event.Event)) (*Summary, error) {
	if o.File != "" {
		r := Recording{Path: o.File, PIDs: o.PIDs, Whole: !o.StateOnly, Quiet: o.Quiet || o.Console.Warn != nil, Ctx: o.Ctx, clock: &o.clock}
		return r.Watch(handle)
	}
	handle = moment.Selected(o.PIDs, handle)
	if len(o.Command) > 0 {
		return o.watchTracing("the command", handle)
	}
	client, err := o.Service()
	if err != nil {
		return nil, err
	}
	if client != nil {
		defer client.Close()
		return o.watchService(client, handle)
	}
	return o.watchTracing(o.Place(), handle)
}

// Place returns the selected processes, or the host.
func (o *Options) Place() string {
	if len(o.PIDs) > 0 {
		return "PID " + page.PIDs(o.PIDs)
	}
	return thisHost
}

func (o *Options) watchTracing(of string, handle func(*event.Event)) (*Summary, error) {
	t, err := o.Trace()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	defer t.unlisten() // a page follows
	mark := func(name string) error {
		t.Mark(name, os.Getuid(), os.Getuid())
		return nil
	}
	findOwners := func(ctx context.Context) error { return t.FindOwners(ctx, o.PIDs, false) }
	switch {
	case o.Started == nil:
		t.Announce()
	case o.AwaitLibrary:
		// Existing memory must be known when the first step begins.
		t.ready = func() { o.Started(mark, findOwners) }
	default:
		o.Started(mark, findOwners)
	}
	if o.Ctx != nil {
		stop := context.AfterFunc(o.Ctx, t.interrupt())
		defer stop()
	}
	s := &Summary{Of: of, Live: !t.OfCommand(), BeganNs: host.Now()}
	err = t.Run(handle, func() {})
	s.Exit, s.Failed, s.EndNs = t.Exit, t.Failed, host.Now()
	return s, err
}

// streamDelay is how long an event that the service has may take to come.
const streamDelay = 200 * time.Millisecond

// ownersInStream searches the owners of processes, and returns when a stream should have them.
func ownersInStream(ctx context.Context, client *service.Client, pids []int) error {
	err := client.FindOwners(ctx, pids)
	if err == nil {
		select {
		case <-time.After(streamDelay):
		case <-ctx.Done():
		}
	}
	return err
}

func (o *Options) watchService(client *service.Client, handle func(*event.Event)) (*Summary, error) {
	// A signal ends watching after the last look; o.Ctx ends it at once.
	asked, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(cmp.Or(o.Ctx, context.Background()))
	defer cancel()
	look := newLastLook(ctx, o)
	end := func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, unix.SIGINT, unix.SIGTERM)
		defer signal.Stop(again)
		go func() {
			select {
			case <-again:
				look.skip()
			case <-ctx.Done():
			}
		}()
		look.run(func(ctx context.Context) { _ = ownersInStream(ctx, client, o.PIDs) })
		cancel()
	}
	defer context.AfterFunc(asked, end)()
	r, err := client.Stream(ctx)
	if err != nil {
		return nil, err
	}
	if o.Started != nil {
		o.Started(func(name string) error { return client.Mark(ctx, name) },
			func(ctx context.Context) error { return client.FindOwners(ctx, o.PIDs) })
	}
	s := &Summary{Of: thisHost, Live: true, BeganNs: host.Now()}
	defer func() { s.EndNs = host.Now() }()
	if os.Geteuid() != 0 {
		s.Of = ownOnThisHost
	}
	var e event.Event
	known := false
	for {
		err := r.Next(&e)
		switch {
		case ctx.Err() != nil && o.StateOnly && os.Geteuid() != 0: // the stream lacks events of other users
			stop() // a second Ctrl-C ends the command
			return s, readState(context.Background(), client, o.Socket, handle)
		case ctx.Err() != nil:
			return s, nil
		case err != nil:
			why, inOrder := serviceEnded(client, err)
			if !inOrder {
				return s, why
			}
			s.Notes, s.Failed = append(s.Notes, why.Error()), true
			return s, nil
		}
		if handle(&e); e.IsInvalid() {
			return s, invalidState(client.Path())
		}
		if e.Kind == event.Checkpoint && !known && o.Duration > 0 {
			known = true // the present state, for which a busy service may take longer than that
			defer time.AfterFunc(o.Duration, end).Stop()
		}
		if e.Kind == event.Checkpoint && o.Started == nil && ctx.Err() == nil { // the checkpoint may be enough
			term.Warn("watching the events of the host's service; Ctrl-C ends and reports")
		}
	}
}
