package main

import (
	"fmt"
	"io"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// An eventWriter writes a format that is made of all events.
type eventWriter interface {
	// Event takes an event after the State has applied it.
	Event(e *event.Event, s *aggregate.State)
	// Close writes the output.
	Close() error
}

// eventsTo returns the function that gives all events to the writer that create returns. what
// describes the output; %s is the number of events.
func eventsTo[W eventWriter](create func(out io.Writer, wall func(ns uint64) int64) (W, error), what string) func(*exportJob) (string, error) {
	return func(x *exportJob) (string, error) {
		var clock page.Clock
		w, err := create(x.file.W, func(ns uint64) int64 { return clock.Wall(ns) })
		if err != nil {
			return "", err
		}
		s, events := aggregate.New(), uint64(0)
		x.summary, err = x.source.Watch(x.source.Clocked(func(c page.Clock) { clock = c }, s.Completed(func(e *event.Event) {
			events++
			w.Event(e, s)
		})))
		if err == nil && events == 0 {
			err = x.source.Missing()
		}
		if err != nil {
			return "", err
		}
		if err := w.Close(); err != nil {
			return "", x.failed(err)
		}
		x.summary.Notes = append(x.summary.Notes, page.Doubts(s.Snapshot().Losses(false, nil), "figures may be wrong")...)
		return fmt.Sprintf(what, page.Grouped(events)+" "+page.Plural(events, "event")), nil
	}
}
