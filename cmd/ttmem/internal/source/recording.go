package source

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
)

// A Recording is a moment.Recording for commands: Ctrl-C ends reading, which shows progress, and errors name
// flags.
type Recording struct {
	Path string
	// Name is its name in messages, if that is not Path.
	Name string
	// PIDs, Whole, KeepSites and Ctx are those of a moment.Recording.
	PIDs             []int
	Whole, KeepSites bool
	Ctx              context.Context
	// Quiet suppresses progress.
	Quiet bool

	// named are the processes that the user selected: an error names those that are not in the file.
	named []int
	// clock, if not nil, gets the clock of the file.
	clock *page.Clock
	file  *moment.Recording
}

// PlayGarbage is the value of GOGC while a file is read: most memory is short-lived, and
// the live part is rarely marked then.
const PlayGarbage = 300

// read calls f with the file. Ctrl-C is an error, as is a selected process that is not in the file.
func (r *Recording) read(f func(*moment.Recording) error) error {
	if r.file == nil {
		r.file = &moment.Recording{Path: realName(r.Path), Name: r.name(), PIDs: r.PIDs, Whole: r.Whole, KeepSites: r.KeepSites, Open: r.open, Warn: term.Warn}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(PlayGarbage))
	ctx, stop := until(r.Ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	r.file.Ctx = ctx
	err := f(r.file)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return term.ErrInterrupted
	case r.Name != "": // what a service recorded has only the selected processes
		return Flagged(err, r.name())
	}
	return cmp.Or(missing(slices.Concat(r.named, r.PIDs), r.Path), Flagged(err, r.name()))
}

// name returns the name in messages.
func (r *Recording) name() string { return cmp.Or(r.Name, shownName(r.Path)) }

func (r *Recording) open(path, name string) (*moment.File, error) {
	f, err := open(path, name)
	if err != nil {
		return nil, err
	}
	if r.clock != nil {
		*r.clock = Clock(f)
	}
	if r.Quiet {
		f.Progress = nil
	}
	return f, nil
}

// Watch calls handle with all events or, unless Whole is true, with those that the state at the end
// needs.
func (r *Recording) Watch(handle func(*event.Event)) (s *Summary, err error) {
	err = r.read(func(of *moment.Recording) error {
		w, err := of.Watch(handle)
		if err == nil {
			s = &Summary{Of: r.name(), Summary: *w}
		}
		return err
	})
	return s, err
}

// StateAt calls reached with the states at a moment, as a Source.
func (r *Recording) StateAt(at moment.Moment, reached func(s *State, of moment.Regions)) (*State, error) {
	if at.AtEnd() {
		end, err := r.ended(at)
		if err == nil {
			reached(end, moment.EveryRegion)
		}
		return end, err
	}
	err := r.read(func(of *moment.Recording) error {
		return of.StateAt(at, func(s *moment.State) { at = s.Moment; r.reached(s, reached) })
	})
	if err != nil {
		return nil, err
	}
	return r.ended(at)
}

// reached calls a function with a state at a moment.
func (r *Recording) reached(s *moment.State, f func(*State, moment.Regions)) {
	f(&State{State: s.State, Summary: Summary{Of: s.Moment.Of(r.name())}, At: s.Moment.Kind, NowNs: s.Now(), Event: s.Event, BeforeNs: s.BeforeNs}, s.Regions)
}

// ended returns the state at the end, after the one at a moment was read.
func (r *Recording) ended(at moment.Moment) (*State, error) {
	end, summary, err := r.End()
	if err != nil {
		return nil, err
	}
	s := &State{State: end, Summary: *summary, NowNs: max(end.Now(), summary.EndNs)}
	s.Of = at.Of(r.name())
	if s.EarlierPeaks {
		s.Notes = append(s.Notes, "`ttmem peak "+r.name()+"` lists the call sites of earlier peaks")
	}
	return s, nil
}

// End returns the state at the end.
func (r *Recording) End() (end *aggregate.State, s *Summary, err error) {
	err = r.read(func(of *moment.Recording) (err error) {
		var w *moment.Summary
		if end, w, err = of.End(); err == nil {
			s = &Summary{Of: r.name(), Summary: *w}
		}
		return err
	})
	return end, s, err
}

// Begin returns where the file begins: before its first event, or after its first checkpoint.
func (r *Recording) Begin() (at memory.Point, err error) {
	err = r.read(func(of *moment.Recording) (err error) { at, err = of.Begin(); return err })
	return at, err
}

// Intervals returns the intervals of a span.
func (r *Recording) Intervals(span moment.Span) (list moment.Intervals, err error) {
	err = r.read(func(of *moment.Recording) (err error) { list, err = of.Intervals(span); return err })
	return list, err
}

// Times returns the intervals of a span in ns after the first event, for views that need no state.
func (r *Recording) Times(span moment.Span) (times memory.Intervals, err error) {
	err = r.read(func(of *moment.Recording) (err error) { times, err = of.Times(span); return err })
	return times, err
}

// Follow brings a state to the end of the file, as a moment.Recording does.
func (r *Recording) Follow(span moment.Span, list moment.Intervals, begin, end func(*aggregate.State, memory.Point)) error {
	return r.read(func(of *moment.Recording) error { return of.Follow(span, list, begin, end) })
}

// Play brings a state to the intervals of a span, as a moment.Recording does. It returns the state at the end
// of the file.
func (r *Recording) Play(span moment.Span, list moment.Intervals, begin func(*aggregate.State, memory.Point), end func(*State, moment.Regions)) (*State, error) {
	err := r.read(func(of *moment.Recording) error {
		return of.Play(span, list, begin, func(s *moment.State) { r.reached(s, end) })
	})
	if err != nil {
		return nil, err
	}
	return r.ended(span.To)
}

// EndOf returns the state at the end of a span as a Source.
func (r *Recording) EndOf(span moment.Span, list moment.Intervals) Source {
	return &spanEnd{r, span, list[len(list)-1:]}
}

// A spanEnd is a Source that has the state at the end of a span.
type spanEnd struct {
	r    *Recording
	span moment.Span
	last moment.Intervals
}

// StateAt has one moment, as running processes have.
func (e *spanEnd) StateAt(_ moment.Moment, reached func(s *State, of moment.Regions)) (*State, error) {
	return e.r.Play(e.span, e.last, func(*aggregate.State, memory.Point) {}, reached)
}
