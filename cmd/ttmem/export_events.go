package main

import (
	"fmt"
	"io"

	"ttmem/aggregate"
	"ttmem/aggregate/export/perfetto"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
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
		return x.writeEvents(aggregate.New(), what, func(wall func(ns uint64) int64) (eventWriter, error) { return create(x.w, wall) })
	}
}

// writeEvents gives all events and the state to the writer that create returns.
func (x *exportJob) writeEvents(s *aggregate.State, what string, create func(wall func(ns uint64) int64) (eventWriter, error)) (string, error) {
	var clock page.Clock
	w, err := create(func(ns uint64) int64 { return clock.Wall(ns) })
	if err != nil {
		return "", err
	}
	events := uint64(0)
	each := s.Completed(func(e *event.Event) { w.Event(e, s) })
	x.summary, err = x.source.Watch(x.source.Clocked(func(c page.Clock) { clock = c }, func(e *event.Event) {
		if e.Kind != event.Checkpoint {
			events++
		}
		each(e)
	}))
	if err == nil && events == 0 {
		err = x.source.Missing()
	}
	if err != nil {
		return "", err
	}
	s.Settle()
	if err := w.Close(); err != nil {
		return "", x.failed(err)
	}
	x.summary.Notes = append(x.summary.Notes, page.Doubts(s.Totals().Losses(false, nil), "figures may be wrong")...)
	return fmt.Sprintf(what, page.Grouped(events)+" "+page.Plural(events, "event")), nil
}

// A trace for Perfetto has at most so many values of counters or, if they would be more, so many of
// each counter.
const mostLevels, levelsOfEach = 2 << 20, 8 << 10

// writePerfetto writes a trace for Perfetto. The peaks come from the end of the recording: of a
// pipe, or of some processes, there is no profile at peaks.
func writePerfetto(x *exportJob) (string, error) {
	var o perfetto.Options
	if source.ReadOnce(x.source.File) == nil {
		end, _, err := (&source.Recording{Path: x.source.File, Ctx: x.source.Ctx}).End()
		if err != nil {
			return "", err
		}
		index := end.Index()
		if len(x.source.PIDs) == 0 {
			o.Peaks = index.Peaks
		}
		if end.Number()*uint64(len(end.Snapshot().Devices)) > mostLevels {
			o.StepNs = (end.Now() - index.First) / levelsOfEach
		}
	}
	s := aggregate.New()
	s.KeepSites()
	return x.writeEvents(s, "trace of %s", func(wall func(ns uint64) int64) (eventWriter, error) {
		o.Wall = wall
		return perfetto.New(x.w, o), nil
	})
}
