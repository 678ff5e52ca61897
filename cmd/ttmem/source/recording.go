package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

// A Recording gives the states of a file at its moments. The state at the end says where the
// other moments are; each is made from the checkpoint before it and the events after that.
type Recording struct {
	Path string
	// Name is its name in messages, if that is not Path.
	Name string
	// PIDs, if any, are the only processes whose events count. Checkpoints have the peaks and
	// counts of all processes, so the whole file is read unless the moment is the end.
	PIDs []int
	// Whole uses no checkpoint, so that events are numbered from the beginning.
	Whole bool
	// KeepSites makes states with complete profiles; Whole has to be true.
	KeepSites bool
	// Quiet suppresses progress.
	Quiet bool
	// Ctx ends reading as Ctrl-C does; nil for none.
	Ctx context.Context
	// Reached is the event with the number at which StateAt arrived; nil if it searched a time.
	// BeforeNs is the time of the event before the latest one; 0 if not known.
	Reached  *event.Event
	BeforeNs uint64

	// named are the processes that the user selected: an error names those that are not in the file.
	named []int
	// clock, if not nil, gets the clock of the file.
	clock   *page.Clock
	end     *aggregate.State
	summary *Summary
	begin   memory.Point // of the file, which
	// continues another one if it begins with a checkpoint.
	continues bool
}

// Watch calls handle with all events or, unless Whole is true, with those that the state at the end
// needs. Ctrl-C is an error.
func (r *Recording) Watch(handle func(*event.Event)) (*Summary, error) {
	f, handle, err := r.open(handle)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if r.clock != nil {
		*r.clock = f.Clock()
	}
	if !r.Whole {
		if err := f.StateOnly(); err != nil {
			return nil, err
		}
	}
	ctx, stop := until(r.Ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	allocated := false // something was
	events, damage := f.Play(ctx, func(e *event.Event) {
		allocated = allocated || isOfMemory(e.Kind)
		handle(e)
	})
	s := &Summary{Of: f.Name, File: f, EndNs: f.EndNs(), Cut: damage != nil || f.noEnd() != ""}
	switch {
	case ctx.Err() != nil:
		return nil, term.ErrInterrupted
	case damage != nil && events == 0:
		return nil, damage
	case s.Cut && !allocated && (damage == nil || errors.Is(damage, io.ErrUnexpectedEOF)):
		return nil, f.withoutMemory(damage)
	case damage != nil:
		s.Notes = append(s.Notes, damage.Error())
		s.Failed = !errors.Is(damage, io.ErrUnexpectedEOF) // the latter is not damage: the writer was killed
	case f.noEnd() != "":
		s.Notes = append(s.Notes, f.noEnd())
	}
	return s, nil
}

// Regions reports whether a region of a chip is shown.
type Regions = func(device int, region event.Region) bool

// EveryRegion selects all regions.
func EveryRegion(int, event.Region) bool { return true }

// StateAt calls reached with the states at a moment, as a Source.
func (r *Recording) StateAt(at Moment, reached func(s *State, of Regions)) (*State, error) {
	if at.AtEnd() {
		end, err := r.ended(at, nil)
		if err == nil {
			reached(end, EveryRegion)
		}
		return end, err
	}
	stops, err := r.find(&at)
	handle := r.at(at, reached)
	for err == nil && len(stops) > 0 {
		stops, err = r.replay(stops, true, handle)
	}
	return r.ended(at, err)
}

// at returns a function that calls reached with states at a moment.
func (r *Recording) at(m Moment, reached func(s *State, of Regions)) func(*aggregate.State, *stop) {
	of := Summary{Of: m.Of(r.name())}
	return func(s *aggregate.State, at *stop) {
		s.Settle() // a refusal follows its run so soon that a moment is hardly between
		reached(&State{State: s, Summary: of, At: m.Kind, NowNs: s.Now()}, at.of)
	}
}

// ended returns the state at the end, after the one at a moment was read.
func (r *Recording) ended(at Moment, err error) (*State, error) {
	if err != nil {
		return nil, r.absent(err)
	}
	end, summary, err := r.End()
	if err != nil {
		return nil, r.absent(err)
	}
	s := &State{State: end, Summary: *summary, NowNs: max(end.Now(), summary.EndNs)}
	s.Of = at.Of(r.name())
	return s, nil
}

// absent returns an error for a selected process that is not in the file or, if all are, err. What a service
// recorded has only these.
func (r *Recording) absent(err error) error {
	if r.Name != "" || errors.Is(err, term.ErrInterrupted) {
		return err
	}
	return cmp.Or(missing(slices.Concat(r.named, r.PIDs), r.Path), err)
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
func (r *Recording) name() string { return cmp.Or(r.Name, shownName(r.Path)) }

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
	if f, err = Open(r.Path); r.Name != "" && err == nil {
		f.Name = r.Name
	}
	if err == nil {
		f.quiet = r.Quiet
	}
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
		if err := f.next(e); err != nil {
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
func (r *Recording) replay(stops []stop, jump bool, reached func(s *aggregate.State, at *stop)) (left []stop, err error) {
	interrupted, uncatch := until(r.Ctx, unix.SIGINT, unix.SIGTERM)
	defer uncatch()
	ctx, cancel := context.WithCancel(interrupted)
	defer cancel()
	state := r.newState()
	latestNs := uint64(0)
	r.Reached, r.BeforeNs = nil, 0
	var f *File
	reach := func(is func(s *stop) bool) bool {
		before := len(stops)
		for len(stops) > 0 && is(&stops[0]) {
			if !stops[0].begins && (len(stops) == 1 || !stops[1].begins) { // else nothing of it is shown
				f.addOwners(state)
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
		r.BeforeNs, latestNs = latestNs, e.TimeNs
		if isNow(&stops[0]) {
			at := *e
			r.Reached = &at
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
		if err := f.before(stops[0].checkpointBefore()); err != nil {
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
	case interrupted.Err() != nil:
		return nil, term.ErrInterrupted
	case ctx.Err() != nil || len(stops) == 0:
		return stops, nil
	case damage != nil:
		return nil, damage
	}
	return nil, fmt.Errorf("%s has changed while it was read: try again", r.name())
}
