package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/moment"
)

// A Source has states: a recording those at its moments; the host's service and a tracer the
// present one.
type Source interface {
	// StateAt calls reached with the state at a moment. Each region has its peak at a different
	// time: for Peak it calls reached several times, each time with the regions that have their
	// peak there. It returns the last known state.
	StateAt(at moment.Moment, reached func(s *State, of moment.Regions)) (end *State, err error)
}

// Present returns the recording or, without one, what runs now. If there are pids, its states have
// only these processes.
func (o *Options) Present(pids []int) Source { return o.open(o.Now, pids) }

// Recording returns the file.
func (o *Options) Recording() *Recording {
	return &Recording{Path: o.File, PIDs: o.PIDs, Quiet: o.Quiet, clock: &o.clock}
}

// Past returns what the host's service has recorded of the processes; close frees it.
func (o *Options) Past() (r *Recording, closing func() error, err error) {
	ctx, stop := until(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	client, err := o.Service()
	if client == nil {
		return nil, nil, cmp.Or(err, errors.New("the ttmem service has ended"))
	}
	defer client.Close()
	f, err := client.Past(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &Recording{Path: fmt.Sprintf("/proc/self/fd/%d", f.Fd()), Name: f.Name(), PIDs: o.PIDs}, f.Close, nil
}

// Watched returns the recording or, without one, what the service has seen, or what runs, watched
// to its end. If there are pids, its states have only these processes.
func (o *Options) Watched(pids []int) Source { return o.open(o.Seen, pids) }

func (o *Options) open(state func() (*State, error), pids []int) Source {
	if o.File != "" {
		return &Recording{Path: o.File, PIDs: pids, named: o.PIDs, Quiet: o.Quiet, clock: &o.clock}
	}
	return &running{state, pids}
}

// running is a Source of processes that run, or of a command that was run.
type running struct {
	state func() (*State, error)
	pids  []int
}

// StateAt has one moment: the present.
func (r *running) StateAt(_ moment.Moment, reached func(s *State, of moment.Regions)) (*State, error) {
	s, err := r.state()
	if err == nil {
		err = s.Select(r.pids)
	}
	if err != nil {
		return nil, err
	}
	reached(s, moment.EveryRegion)
	return s, nil
}
