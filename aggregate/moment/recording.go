package moment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Recording gives the states of a file at its moments. The state at the end says where the
// other moments are; each is made from the checkpoint before it and the events after that.
type Recording struct {
	Path string
	// Name is its name in errors, if that is not Path.
	Name string
	// PIDs, if any, are the only processes whose events count. Checkpoints have the peaks and
	// counts of all processes, so the whole file is read unless the moment is the end.
	PIDs []int
	// Whole uses no checkpoint, so that events are numbered from the beginning.
	Whole bool
	// KeepSites makes states with complete profiles; Whole has to be true.
	KeepSites bool
	// Ctx ends reading, with its error; nil for none.
	Ctx context.Context
	// Open opens the file; nil: Open.
	Open func(path, name string) (*File, error)
	// Warn, if not nil, is called with a line if reading takes much longer than usual.
	Warn func(line string)

	end     *aggregate.State
	summary *Summary
	begin   memory.Point // of the file, which
	// continues another one if it begins with a checkpoint.
	continues bool
}

// A Summary says how much of a file was read.
type Summary struct {
	// File is the closed file.
	File *File
	// EndNs is when recording ended, by CLOCK_MONOTONIC; 0 if not known.
	EndNs uint64
	// Notes list missing parts, one line each.
	Notes []string
	// Cut is true if the end of the file is missing or damaged, and Failed if a part could not be read.
	Cut, Failed bool
	// EarlierPeaks is true if a peak that was looked for lies before the file begins: the state has its call sites.
	EarlierPeaks bool
}

// A State is a state at a moment.
type State struct {
	*aggregate.State
	// Moment is the moment; for a Story, what that is.
	Moment Moment
	// Regions are those whose memory the state shows: each region has its peak at a different time.
	Regions Regions
	// Event is the event at the moment; nil if a time was searched. BeforeNs is the time of the event
	// before; 0 if not known.
	Event    *event.Event
	BeforeNs uint64
}

// Watch calls handle with all events or, unless Whole is true, with those that the state at the end
// needs.
func (r *Recording) Watch(handle func(*event.Event)) (*Summary, error) {
	f, handle, err := r.open(handle)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !r.Whole {
		if err := f.StateOnly(); err != nil {
			return nil, err
		}
	}
	allocated := false // something was
	events, damage := f.Play(r.ctx(), func(e *event.Event) {
		allocated = allocated || isOfMemory(e.Kind)
		handle(e)
	})
	s := &Summary{File: f, EndNs: f.EndNs(), Cut: damage != nil || f.noEnd() != ""}
	switch {
	case r.ctx().Err() != nil:
		return nil, r.ctx().Err()
	case damage != nil && events == 0:
		return nil, damage
	case s.Cut && !allocated && (damage == nil || errors.Is(damage, io.ErrUnexpectedEOF)):
		return nil, f.withoutMemory(damage)
	case damage != nil:
		s.Notes = []string{damage.Error()}
		s.Failed = !errors.Is(damage, io.ErrUnexpectedEOF) // the latter is not damage: the writer was killed
	case f.noEnd() != "":
		s.Notes = []string{f.noEnd()}
	}
	return s, nil
}

func (r *Recording) ctx() context.Context { return cmp.Or(r.Ctx, context.Background()) }

// Selected passes on events of the selected processes, and events without a process; all if there are
// no pids.
func Selected(pids []int, handle func(*event.Event)) func(*event.Event) {
	if len(pids) == 0 {
		return handle
	}
	return func(e *event.Event) {
		if e.Kind == event.Checkpoint {
			e = aggregate.OfProcesses(e, pids)
		}
		if e != nil && (e.PID == 0 || slices.Contains(pids, e.PID)) {
			handle(e)
		}
	}
}

// ReadOnce returns an error if a file, such as a pipe, can be read only once. name is its name in the error.
func ReadOnce(path, name string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file: it can be read only once, and this needs it twice; give a file", name)
	}
	return nil
}

// Regions reports whether a region of a chip is shown.
type Regions = func(device int, region event.Region) bool

// EveryRegion selects all regions.
func EveryRegion(int, event.Region) bool { return true }

// StateAt calls reached with the state at a moment. Each region has its peak at a different time: for Peak it
// calls reached several times, each time with the regions that have their peak there. A state changes after
// reached returns, unless the moment is the end.
func (r *Recording) StateAt(at Moment, reached func(*State)) error {
	if at.AtEnd() {
		end, _, err := r.End()
		if err == nil {
			reached(&State{State: end, Moment: at, Regions: EveryRegion})
		}
		return err
	}
	stops, err := r.find(&at)
	for err == nil && len(stops) > 0 {
		stops, err = r.replay(stops, true, func(s *State, stop *stop) { reached(s.at(&at, stop)) })
	}
	return err
}

// at completes the state at a stop that is a moment.
func (s *State) at(m *Moment, at *stop) *State {
	s.Settle() // a refusal follows its run so soon that a moment is hardly between
	s.Moment, s.Regions = *m, at.of
	return s
}

// endStop returns the end of the file, which is after events that have no number.
func (r *Recording) endStop() stop {
	return stop{Point: memory.Point{TimeNs: r.end.Now()}, timed: true, of: EveryRegion, isEnd: true}
}

// End returns the state at the end.
func (r *Recording) End() (*aggregate.State, *Summary, error) {
	if r.end != nil {
		return r.end, r.summary, nil
	}
	state := r.newState()
	n := 0
	summary, err := r.Watch(func(e *event.Event) { n++; state.Apply(e) })
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, errors.New(r.name() + " has no events")
	}
	state.Settle()
	r.end, r.summary = state, summary
	return state, summary, nil
}

// name returns the name in messages.
func (r *Recording) name() string { return cmp.Or(r.Name, r.Path) }

// newState returns the state before the first event.
func (r *Recording) newState() *aggregate.State {
	s := aggregate.New()
	if r.KeepSites {
		s.KeepSites()
	}
	return s
}

// open opens the file and returns a function that takes its events. That function calls each with
// the events that count.
func (r *Recording) open(each func(*event.Event)) (f *File, handle func(*event.Event), err error) {
	open := r.Open
	if open == nil {
		open = Open
	}
	f, err = open(r.Path, r.name())
	return f, Selected(r.PIDs, each), err
}

// Begin returns where the file begins: before its first event, or after its first checkpoint.
func (r *Recording) Begin() (memory.Point, error) {
	found := r.begin != (memory.Point{})
	if found {
		return r.begin, nil
	}
	f, handle, err := r.open(func(e *event.Event) {
		r.begin, found = memory.Point{TimeNs: e.TimeNs}, true
		if r.continues = e.Kind == event.Checkpoint; r.continues {
			r.begin.Number = aggregate.NumberOf(e)
		}
	})
	if err != nil {
		return r.begin, err
	}
	defer f.Close()
	for e := new(event.Event); !found; handle(e) {
		if err := f.Next(e); err != nil {
			return r.begin, err
		}
	}
	return r.begin, nil
}

// A stop is a place at which a state is needed.
type stop struct {
	// Point is the event before the stop or, if timed is true, a time: the stop is after the last
	// event at that time. Without a time there is no checkpoint before it.
	memory.Point
	timed bool
	of    Regions
	// begins is true for the beginning of an interval, and isEnd for the end of the file.
	begins, isEnd bool
}

func (s *stop) isBefore(other *stop) bool {
	if s.timed || other.timed {
		return s.TimeNs < other.TimeNs
	}
	return s.Number < other.Number
}

// checkpointBefore returns a time: the last checkpoint before it is before the stop.
func (s *stop) checkpointBefore() uint64 {
	if s.timed {
		return s.TimeNs + 1
	}
	return s.TimeNs
}

// replay brings a state to the first of the stops, which are in order, and continues to the next
// ones. If jump is true, it ends where another checkpoint is nearer to the next stop. It returns the
// remaining stops.
func (r *Recording) replay(stops []stop, jump bool, reached func(s *State, at *stop)) (left []stop, err error) {
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	state := &State{State: r.newState()}
	latestNs := uint64(0)
	var f *File
	reach := func(is func(s *stop) bool) bool {
		before := len(stops)
		for len(stops) > 0 && is(&stops[0]) {
			if !stops[0].begins && (len(stops) == 1 || !stops[1].begins) { // else nothing of it is shown
				f.AddOwners(state.State)
			}
			reached(state, &stops[0])
			stops = stops[1:]
		}
		return len(stops) < before
	}
	isNow := func(s *stop) bool { return !s.timed && state.Number() >= s.Number }
	f, handle, err := r.open(func(e *event.Event) {
		if reach(func(s *stop) bool { return s.timed && e.TimeNs > s.TimeNs }) && len(stops) == 0 {
			cancel()
			return
		}
		state.Apply(e)
		state.BeforeNs, latestNs = latestNs, e.TimeNs
		if isNow(&stops[0]) {
			at := *e
			state.Event = &at
		}
		if reach(isNow) && (len(stops) == 0 || jump && !r.Whole && f.hasBetween(state.Now(), stops[0].checkpointBefore())) {
			cancel()
		}
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !r.Whole {
		if err := f.Last(stops[0].checkpointBefore()); err != nil {
			return nil, err
		}
	}
	if !r.continues { // its first checkpoint replaces the state
		reach(isNow)
	}
	if len(stops) == 0 { // before the first event
		return nil, nil
	}
	_, damage := f.Play(ctx, handle)
	if ctx.Err() == nil && state.Number() >= r.end.Number() { // all was read
		reach(func(s *stop) bool { return s.timed || isNow(s) })
	}
	switch {
	case r.ctx().Err() != nil:
		return nil, r.ctx().Err()
	case ctx.Err() != nil || len(stops) == 0:
		return stops, nil
	case damage != nil:
		return nil, damage
	}
	return nil, fmt.Errorf("%s has changed while it was read: try again", r.name())
}
