package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// An engine traces: the tracer of this process or, for an ordinary user, a service.
type engine interface {
	// Run calls handle with the events, and pause between batches, until the context is done.
	Run(ctx context.Context, handle func(*event.Event), pause func()) error
	// FindOwners searches the owners of buffers.
	FindOwners(ctx context.Context, pids []int, counts bool) error
	// Mark sets a mark.
	Mark(name string, uid, sharer int)
	// Maps reports whether a process uses tt-metal, and Discovered whether any one that is traced does.
	Maps(pid int) bool
	Discovered() bool
	// Reading reports whether the existing memory of processes is still being read.
	Reading() bool
	// Finish reports whether all is read that a command has mapped: see find.Finder.Finish.
	Finish(waited bool) bool
	Close()
}

// An ordinary engine traces for a user without root's rights: the host's service sends the events of the user's
// processes. It passes on those of some of them.
type ordinary struct {
	client *service.Client
	stream *recording.Reader // until end
	asked  context.Context
	end    context.CancelFunc
	// lost reports that later events are missing.
	lost func(why string)
	// pids are the processes; none: all of the user's. With children, also those that descend from them.
	pids     []int
	children bool
	known    map[int]bool // whether a process that has started is one of these
	seen     atomic.Bool
	reading  atomic.Bool
}

// newOrdinary begins to get events. Meanwhile owners are searched at "peaks" or "marks"; "": only when asked.
func newOrdinary(client *service.Client, lost func(string), pids []int, children bool, ownersAt string) (*ordinary, error) {
	s := &ordinary{client: client, lost: lost, pids: pids, children: children, known: make(map[int]bool)}
	s.reading.Store(!children) // a command has no memory yet
	s.asked, s.end = context.WithCancel(context.Background())
	var err error
	if s.stream, err = client.StreamWithOwners(s.asked, ownersAt); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// wanted reports whether a process is traced. Its parents are known while they run: a process that begins to use
// tt-metal after its parents have ended is not one that descends from them.
func (s *ordinary) wanted(pid int) bool {
	if len(s.pids) == 0 || slices.Contains(s.pids, pid) {
		return true
	}
	if !s.children {
		return false
	}
	for at, depth := pid, 0; at > 1 && depth < maxDepth; at, depth = host.Parent(at), depth+1 {
		if slices.Contains(s.pids, at) || at != pid && s.known[at] {
			return true
		}
	}
	return false
}

// maxDepth bounds the search for a process's parents, which change meanwhile.
const maxDepth = 1000

// take returns an event if it belongs to the processes: a Checkpoint with these only.
func (s *ordinary) take(e *event.Event) *event.Event {
	switch {
	case len(s.pids) == 0:
	case e.Kind == event.Checkpoint:
		return aggregate.OfProcesses(e, s.pids)
	case e.PID == 0:
		return e
	case e.Kind == event.ProcessStart && !e.Reread:
		s.known[e.PID] = s.wanted(e.PID)
	}
	if len(s.pids) > 0 && !s.known[e.PID] && !slices.Contains(s.pids, e.PID) {
		return nil
	}
	switch e.Kind {
	case event.ProcessStart:
		s.seen.Store(true)
	case event.ProcessExit:
		delete(s.known, e.PID)
	}
	return e
}

// sent is the next event of a stream, or its end.
type sent struct {
	event event.Event
	err   error
}

// Run passes on the events of the service. If that ends, a command goes on.
func (s *ordinary) Run(ctx context.Context, handle func(*event.Event), pause func()) error {
	events := make(chan sent, waitingEvents)
	go func() {
		for next := (sent{}); next.err == nil; {
			next = sent{}
			next.err = s.stream.Next(&next.event)
			select {
			case events <- next:
			case <-s.asked.Done():
				return
			}
		}
	}()
	go s.read(s.asked)
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	// After the end, the service sends what happened before it. Then quiet counts the ticks without such an event: a
	// clock would go on while a busy host does not run this process.
	var endNs uint64
	var quiet int
	ended, sent := ctx.Done(), (<-chan struct{})(nil)
	for {
		select {
		case next := <-events:
			if next.err != nil {
				why, _ := serviceEnded(s.client, next.err)
				if !s.children {
					return why
				}
				s.lost(why.Error() + "; the command goes on, and is not traced")
				events = nil
				continue
			}
			if next.event.TimeNs <= endNs {
				quiet = 0
			}
			e := s.take(&next.event)
			if e != nil {
				handle(e)
			}
			if next.event.Kind == event.Checkpoint && (e == nil || e.IsInvalid()) {
				return invalidState(s.client.Path())
			}
		case <-ended:
			endNs, ended = host.Now(), nil
			sent = s.whenSent(endNs)
		case <-sent:
			sent, quiet = nil, 0
		case <-tick.C:
			pause()
			if quiet++; endNs != 0 && (events == nil || sent == nil && quiet > int(streamDelay/tickInterval)) {
				return nil
			}
		}
	}
}

// serviceEnded says why the stream of a service ended, and whether the service ended it in order.
func serviceEnded(client *service.Client, err error) (why error, inOrder bool) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the ttmem service at %s ended, or dropped this command because it read too slowly", client.Path()), true
	}
	return fmt.Errorf("reading from the ttmem service at %s: %w", client.Path(), err), false
}

const (
	waitingEvents = 1024
	tickInterval  = 10 * time.Millisecond
	readInterval  = 100 * time.Millisecond
	// sentPatience is how long the service may take to send what happened, on a busy host.
	sentPatience = 10 * time.Second
)

// whenSent returns a channel that is closed once the service has sent all that happened before a time. An older service
// does not tell that.
func (s *ordinary) whenSent(ns uint64) <-chan struct{} {
	sent := make(chan struct{})
	ctx, stop := context.WithTimeout(s.asked, sentPatience)
	go func() {
		defer close(sent)
		defer stop()
		for ctx.Err() == nil {
			// it refuses one who asks too often
			if health, err := s.client.Health(ctx); err == nil && (health.HandledNs == 0 || health.HandledNs >= ns) {
				return
			}
			time.Sleep(tickInterval)
		}
	}()
	return sent
}

// FindOwners searches the owners of the user's processes.
func (s *ordinary) FindOwners(ctx context.Context, pids []int, _ bool) error {
	return ownersInStream(ctx, s.client, pids)
}

// Mark sets a mark in the service.
func (s *ordinary) Mark(name string, _, _ int) { _ = s.client.Mark(context.Background(), name) }

// Maps reports whether the service has seen a process, in which it has found tt-metal.
func (s *ordinary) Maps(pid int) bool {
	snapshot, err := s.client.Snapshot(context.Background())
	return err != nil || slices.Contains(pidsOf(snapshot), pid)
}

// Discovered reports whether a process of these was seen.
func (s *ordinary) Discovered() bool { return s.seen.Load() }

// The service reads what all processes map, and does not tell whose it has not read yet.
func (s *ordinary) Finish(bool) bool { return true }

// Reading reports whether the service still reads the memory of processes.
func (s *ordinary) Reading() bool { return s.reading.Load() }

// read asks the service until it has read the memory of all processes.
func (s *ordinary) read(ctx context.Context) {
	for s.Reading() && ctx.Err() == nil {
		if health, err := s.client.Health(ctx); err != nil || !health.Reading {
			s.reading.Store(false)
			return
		}
		select {
		case <-time.After(readInterval):
		case <-ctx.Done():
		}
	}
}

// Close closes the connections.
func (s *ordinary) Close() {
	s.end()
	s.client.Close()
}
