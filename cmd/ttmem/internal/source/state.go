package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/owner"
)

// A State is a state with its origin. Of is its moment and place: "at the end of model.ttmem".
type State struct {
	*aggregate.State
	Summary
	// At is the kind of its moment, if that was searched; for a Story, what that is.
	At moment.Kind
	// NowNs is the time of the state, by CLOCK_MONOTONIC.
	NowNs uint64
	// Event is the event at the moment of a recording; nil if a time was searched. BeforeNs is the time of
	// the event before; 0 if not known.
	Event    *event.Event
	BeforeNs uint64
}

// newState returns an empty state of a place.
func newState(of string) *State {
	return &State{State: aggregate.New(), Summary: Summary{Of: of}}
}

// Select leaves only these processes; all if there are none.
func (s *State) Select(pids []int) error {
	if len(pids) == 0 {
		return nil
	}
	if err := CheckPIDs(pids, s.Totals(), s.Of); err != nil {
		return err
	}
	selected := aggregate.New()
	selected.Apply(aggregate.OfProcesses(s.Checkpoint(), pids))
	s.State = selected
	return nil
}

// Now returns the present state of the host's service or, without one, of the running processes.
// Ctrl-C ends reading.
func (o *Options) Now() (*State, error) {
	s, err := o.ofService()
	if s != nil || err != nil {
		return s, err
	}
	ctx, stop := until(o.Ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if s, err = ofProcesses(ctx, o.PIDs); ctx.Err() != nil {
		return nil, term.ErrInterrupted
	}
	return s, err
}

// Seen returns the state of the host's service or, without a service, the state at the end of
// watching. Of is a place: "in model.ttmem".
func (o *Options) Seen() (*State, error) {
	if o.File == "" && len(o.Command) == 0 {
		if s, err := o.ofService(); s != nil || err != nil {
			if s != nil {
				s.Live = true
			}
			return s, err
		}
	}
	s := newState("")
	w, err := o.Watch(s.Apply)
	if err != nil {
		return nil, err
	}
	if o.File != "" {
		s.Advance(w.EndNs)
	}
	s.Settle()
	s.Summary, s.NowNs = *w, s.State.Now()
	s.Of = w.In()
	return s, nil
}

// ofService returns the state of the host's service; nil if none runs and the user can trace
// without it.
func (o *Options) ofService() (*State, error) {
	ctx, stop := until(o.Ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	client, err := o.Service()
	if client == nil {
		return nil, err
	}
	defer client.Close()
	var missing []string
	if o.Owners {
		found := term.While("searching the owners of buffers")
		err := client.FindOwners(ctx, o.PIDs)
		found()
		if err != nil {
			missing = []string{"owners may be missing: " + err.Error()}
		}
	}
	s, err := ServiceState(ctx, client, o.Socket)
	if ctx.Err() != nil {
		return nil, term.ErrInterrupted
	}
	if err == nil {
		s.Notes = append(s.Notes, missing...)
	}
	return s, err
}

// ofProcesses returns the allocations of processes, as read from their memory. They have no
// stacks. It waits for nothing else.
func ofProcesses(ctx context.Context, pids []int) (*State, error) {
	t, err := (&Options{PIDs: pids, Stacks: Stacks{none: true}}).Trace()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	defer t.unlisten() // a page follows
	s := newState(In(t.o.Place()))
	shown := term.NewProgress(0)
	defer shown.End()
	reading, done := context.WithCancel(ctx)
	defer done()
	err = t.own.Run(reading, s.Apply, func() {
		if !t.Reading() && !t.own.Searching() {
			done()
		}
		shown.Report(func() string {
			return fmt.Sprintf("reading memory %s for %.0f s", s.Of, time.Since(shown.Begun).Seconds())
		})
	})
	if err != nil {
		return nil, err
	}
	s.NowNs = host.Now()
	s.SettleUntil(s.NowNs)
	if buffers := s.Buffers(); len(buffers) > 0 {
		s.Notes = append(s.Notes, "read from the memory of running processes: without call stacks, and circular buffers only of programs that "+
			"run just now; `ttmem attach` has the stacks of later allocations")
		if note := ownerless(ctx, buffers, s.Snapshot()); note != "" {
			s.Notes = append(s.Notes, note)
		}
	}
	return s, nil
}

// ownerless says how much memory of processes that were searched completely has no owner, and why; "" if
// all has one. page.Doubts has the other processes.
func ownerless(ctx context.Context, buffers []memory.Buffer, snap *memory.Snapshot) string {
	searched, native := make(map[int]bool), make(map[int]bool)
	var searcher owner.Searcher
	for i := range snap.Processes {
		p := &snap.Processes[i]
		searched[p.PID] = p.OwnerSearch != nil && p.OwnerSearch.Incomplete == ""
		native[p.PID] = searched[p.PID] && p.OwnerSearch.Unowned > 0 && searcher.LacksPython(ctx, new(host.Proc), p.PID)
	}
	var count, bytes, late, alone uint64
	for i := range buffers {
		if b := &buffers[i]; b.Path == "" && searched[b.PID] {
			count, bytes = count+1, bytes+b.AllocatedBytes()
			switch {
			case native[b.PID]:
				alone++
			case !b.BeforeAttach:
				late++
			}
		}
	}
	if count == 0 {
		return ""
	}
	var why []string
	if late > 0 {
		why = append(why, page.Grouped(late)+" allocated during the search")
	}
	if alone > 0 {
		why = append(why, page.Grouped(alone)+" of processes that run no Python")
	}
	if late += alone; count > late {
		why = append(why, page.Grouped(count-late)+" held only by C++ code, or by Python variables that changed during the search")
	}
	return fmt.Sprintf("%s of %s (%s) have no owner: %s", page.Grouped(count), page.Count(uint64(len(buffers)), "buffer"), page.Bytes(bytes), strings.Join(why, ", "))
}

// ServiceState returns the state that a service reports.
func ServiceState(ctx context.Context, client *service.Client, socket string) (*State, error) {
	s := newState("on this host")
	if err := readState(ctx, client, socket, s.Apply); err != nil {
		return nil, err
	}
	s.NowNs = host.Now()
	s.SettleUntil(s.NowNs)
	if os.Geteuid() != 0 {
		s.Of = In(ownOnThisHost)
		s.Others, s.Chips = OtherUsers(ctx, client)
	}
	if health, err := client.Health(ctx); err == nil && health.Reading {
		s.Notes = append(s.Notes, page.StillReading)
	}
	return s, nil
}

// invalidState is the error for a state that cannot be read.
func invalidState(socket string) error {
	return fmt.Errorf("the ttmem service at %s sent a state that cannot be read: use the same version of ttmem", socket)
}

// readState calls handle with the events of the state that a service reports.
func readState(ctx context.Context, client *service.Client, socket string, handle func(*event.Event)) error {
	r, err := client.State(ctx)
	if err != nil {
		return err
	}
	shown := term.NewProgress(0)
	defer shown.End()
	var e event.Event
	for n := 0; ; n++ {
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading from the ttmem service at %s: %w", socket, err)
		}
		if handle(&e); e.IsInvalid() {
			return invalidState(socket)
		}
		shown.Report(func() string { return fmt.Sprintf("%d buffers", n) })
	}
	if _, whole := r.End(); !whole {
		return fmt.Errorf("the ttmem service at %s ended while it answered: try again", socket)
	}
	return nil
}

// OthersUnknown is shown to users who see only their own processes if the memory of others is not
// known.
const OthersUnknown = "the memory of other users is not known"

// OtherUsers returns what the service reports about other users: a text, and the chips with the
// totals of all users; nil if not known.
func OtherUsers(ctx context.Context, client *service.Client) (words string, chips []memory.Device) {
	snap, err := client.Snapshot(ctx)
	if err != nil {
		return OthersUnknown, nil
	}
	return page.OthersHold(snap), snap.Devices
}
