package source

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// A Recording gives the states of a file at its moments. The state at the end says where the
// other moments are; each is made from the checkpoint before it and the events after that.
type Recording struct {
	Path string
	// PIDs, if any, are the only processes whose events count. Checkpoints have the peaks and
	// counts of all processes, so the whole file is read unless the moment is the end.
	PIDs []int
	// Whole uses no checkpoint, so that events are numbered from the beginning.
	Whole bool
	// Quiet suppresses progress.
	Quiet bool
	// Reached is the event with the number at which StateAt arrived; nil if it searched a time.
	// BeforeNs is the time of the event before the latest one; 0 if not known.
	Reached  *event.Event
	BeforeNs uint64

	end     *aggregate.State
	summary *Summary
	lines   lineFinder
	begin   memory.Point // of the file
}

// Regions reports whether a region of a chip is shown.
type Regions = func(device int, region event.Region) bool

// EveryRegion selects all regions.
func EveryRegion(int, event.Region) bool { return true }

// StateAt calls reached with the state at a moment. Each region has its peak at a different time:
// for Peak it calls reached several times, each time with the regions that have their peak there.
func (r *Recording) StateAt(m Moment, reached func(s *aggregate.State, of Regions)) error {
	if m.AtEnd() {
		end, _, err := r.End()
		if err == nil {
			reached(end, EveryRegion)
		}
		return err
	}
	stops, err := r.find(m)
	for err == nil && len(stops) > 0 {
		stops, err = r.replay(stops, reached)
	}
	return err
}

// StateFrom is StateAt, but first calls begin with the same State at an earlier moment. It reads
// the whole file.
func (r *Recording) StateFrom(from, to Moment, begin func(s *aggregate.State), reached func(s *aggregate.State, of Regions)) error {
	r.Whole, r.end = true, nil // a checkpoint would replace the state
	first, err := r.find(from)
	if err != nil {
		return err
	}
	stops := []stop{{Point: memory.Point{Number: r.end.Number(), TimeNs: r.end.Now()}, of: EveryRegion}}
	if !to.AtEnd() {
		if stops, err = r.find(to); err != nil {
			return err
		}
	}
	if a, b := &first[0], &stops[0]; !a.timed && !b.timed && a.Number > b.Number || (a.timed || b.timed) && a.TimeNs > b.TimeNs {
		return fmt.Errorf("--from %s is after --to %s: exchange them", from.Text, to.Text)
	}
	begun := false
	_, err = r.replay(append(first, stops...), func(s *aggregate.State, of Regions) {
		if !begun {
			begun = true
			begin(s)
			return
		}
		reached(s, of)
	})
	return err
}

// TimeOf returns the time from the first event to a mark or a failure, in ns.
func (r *Recording) TimeOf(m Moment) (uint64, error) {
	stops, err := r.find(m)
	if err != nil {
		return 0, err
	}
	if stops[0].TimeNs < r.begin.TimeNs {
		return 0, errors.New(r.Path + ": " + m.Text + " is before the first event")
	}
	return stops[0].TimeNs - r.begin.TimeNs, nil
}

// End returns the state at the end.
func (r *Recording) End() (*aggregate.State, *Summary, error) {
	if r.end != nil {
		return r.end, r.summary, nil
	}
	state := aggregate.New()
	n := 0
	o := Options{File: r.Path, PIDs: r.PIDs, StateOnly: !r.Whole, Quiet: r.Quiet, lines: &r.lines}
	summary, err := o.Watch(func(e *event.Event) { n++; state.Apply(e) })
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, errors.New(r.Path + " has no events")
	}
	r.end, r.summary = state, summary
	return state, summary, nil
}

// open opens the file and returns a function that takes its events. That function calls each with
// the events that count.
func (r *Recording) open(each func(*event.Event)) (f *File, handle func(*event.Event), err error) {
	f, err = Open(r.Path)
	if err == nil {
		f.quiet = r.Quiet
		f.shareLines(&r.lines)
	}
	return f, (&Options{PIDs: r.PIDs}).Selected(each), err
}

// Begin returns where the file begins.
func (r *Recording) Begin() (memory.Point, error) {
	if r.begin == (memory.Point{}) {
		if err := r.readBegin(); err != nil {
			return memory.Point{}, err
		}
	}
	return r.begin, nil
}

// readBegin finds where the file begins: before its first event, or after its first checkpoint.
func (r *Recording) readBegin() error {
	found := false
	f, handle, err := r.open(func(e *event.Event) {
		r.begin, found = memory.Point{TimeNs: e.TimeNs}, true
		if e.Kind == event.Checkpoint {
			r.begin.Number = aggregate.NumberOf(e)
		}
	})
	if err != nil {
		return err
	}
	defer f.Close()
	for e := new(event.Event); !found; handle(e) {
		if err := f.next(e); err != nil {
			return err
		}
	}
	return nil
}

// A stop is a place at which a state is needed.
type stop struct {
	// Point is the event before the stop or, if timed is true, a time: the stop is after the last
	// event at that time. Without a time there is no checkpoint before it.
	memory.Point
	timed bool
	of    Regions
}

// checkpointBefore returns a time: the last checkpoint before it is before the stop.
func (s *stop) checkpointBefore() uint64 {
	if s.timed {
		return s.TimeNs + 1
	}
	return s.TimeNs
}

// replay brings a state to the first of the stops, which are in order, and continues until
// another checkpoint is nearer to the next stop. It returns the remaining stops.
func (r *Recording) replay(stops []stop, reached func(s *aggregate.State, of Regions)) (left []stop, err error) {
	interrupted, uncatch := (&Options{}).until(unix.SIGINT, unix.SIGTERM)
	defer uncatch()
	ctx, cancel := context.WithCancel(interrupted)
	defer cancel()
	state := aggregate.New()
	latestNs := uint64(0)
	r.Reached, r.BeforeNs = nil, 0
	reach := func(is func(s *stop) bool) bool {
		before := len(stops)
		for len(stops) > 0 && is(&stops[0]) {
			reached(state, stops[0].of)
			stops = stops[1:]
		}
		return len(stops) < before
	}
	isNow := func(s *stop) bool { return !s.timed && state.Number() >= s.Number }
	var f *File
	f, handle, err := r.open(func(e *event.Event) {
		if reach(func(s *stop) bool { return s.timed && e.TimeNs > s.TimeNs }) && len(stops) == 0 {
			cancel()
			return
		}
		state.Apply(e)
		r.BeforeNs, latestNs = latestNs, e.TimeNs
		if isNow(&stops[0]) {
			at := *e
			r.Reached = &at
		}
		if reach(isNow) && (len(stops) == 0 || !r.Whole && f.hasBetween(state.Now(), stops[0].checkpointBefore())) {
			cancel()
		}
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !r.Whole {
		if err := f.before(stops[0].checkpointBefore()); err != nil {
			return nil, err
		}
	}
	if reach(isNow); len(stops) == 0 { // before the first event
		return nil, nil
	}
	_, damage := f.Play(ctx, handle)
	if ctx.Err() == nil && state.Number() >= r.end.Number() { // all was read
		reach(func(s *stop) bool { return s.timed || isNow(s) })
	}
	switch {
	case interrupted.Err() != nil:
		return nil, term.ErrInterrupted
	case ctx.Err() != nil || len(stops) == 0:
		return stops, nil
	case damage != nil:
		return nil, damage
	}
	return nil, fmt.Errorf("%s has changed while it was read: try again", r.Path)
}
