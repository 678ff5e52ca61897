package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// The bounds of what tapes have: bytes of root's and of all others together, and how many there are.
const (
	rootTape                  = 64 << 20
	userTapes                 = 64 << 20
	maxTapes, maxTapesPerUser = 32, 4
)

// tapes have the newest events for each viewer, as a recording of the viewer's view that begins with a
// checkpoint: questions about the past are answered from it. A user's events take nothing from the tapes
// of others. The Hub must be locked for all methods.
type tapes struct {
	state     *aggregate.State
	all       *tape         // of viewers who see everything
	users     map[int]*tape // by user id
	processes map[int]*tape // of running processes; nil for a user without a tape
	// bytes are the most that root's tape has, and all others together.
	bytes struct{ root, users int }
}

// A tape is that of one viewer. A nil tape takes nothing.
type tape struct {
	*recording.Rolling
	sharer  int    // to whom its user counts
	running int    // processes
	ended   uint64 // when the last of them did
}

func newTapes(state *aggregate.State, root, users int) *tapes {
	t := &tapes{state: state, users: make(map[int]*tape), processes: make(map[int]*tape)}
	t.bytes.root, t.bytes.users = root, users
	t.all = t.begin(Viewer{All: true}, 0, root)
	return t
}

func (t *tapes) begin(v Viewer, sharer, most int) *tape {
	var selected func(uid int) bool
	if !v.All {
		selected = func(uid int) bool { return uid == v.UID }
	}
	r, err := recording.NewRolling(recording.NewHeader(), most, func() func() *event.Event { return t.state.Freeze(selected) })
	if err != nil {
		return nil
	}
	return &tape{Rolling: r, sharer: sharer}
}

func (t *tape) add(e *event.Event) {
	if t != nil {
		t.Add(e)
	}
}

// take takes an event, which the state has. It shows events to the same viewers as a sight.
func (t *tapes) take(e *event.Event) {
	t.all.add(e)
	switch {
	case e.PID == 0 && e.Kind == event.Lost:
		for _, one := range t.users {
			one.add(e)
		}
	case e.PID == 0 && e.Kind == event.Mark:
		t.addFor(e)
	case e.PID == 0:
	case e.Kind == event.ProcessStart:
		t.end(e)
		one := t.addFor(e)
		if t.processes[e.PID] = one; one != nil {
			one.running++
		}
	default:
		t.processes[e.PID].add(e)
		if e.Kind == event.ProcessExit {
			t.end(e)
		}
	}
}

// addFor adds an event to the tape of its user, and begins that if there is none: its checkpoint has the event.
func (t *tapes) addFor(e *event.Event) *tape {
	one := t.users[e.UID]
	switch {
	case e.UID == 0: // root sees everything
		return nil
	case one == nil && t.makeRoom(e.CountsTo()):
		if one = t.begin(Viewer{UID: e.UID}, e.CountsTo(), t.bytes.users); one != nil {
			t.users[e.UID] = one
		}
		return one
	}
	one.add(e)
	return one
}

// end notes that a process ended.
func (t *tapes) end(e *event.Event) {
	if one := t.processes[e.PID]; one != nil {
		one.running--
		one.ended = e.TimeNs
	}
	delete(t.processes, e.PID)
}

// makeRoom makes room for one more tape of a sharer, and reports whether there is. It drops the tape of a
// user without processes.
func (t *tapes) makeRoom(sharer int) bool {
	has, idle := 0, -1
	for _, one := range t.users {
		if one.sharer == sharer {
			has++
		}
	}
	if has < maxTapesPerUser && len(t.users) < maxTapes {
		return true
	}
	for uid, one := range t.users {
		if one.running == 0 && (has < maxTapesPerUser || one.sharer == sharer) && (idle < 0 || one.ended < t.users[idle].ended) {
			idle = uid
		}
	}
	delete(t.users, idle)
	return idle >= 0
}

// trim drops the oldest parts while there are too many bytes: of the sharer who has most, the largest tape's.
func (t *tapes) trim() {
	for t.all.Bytes() > t.bytes.root && t.all.Drop() {
	}
	for {
		sum, of := 0, make(map[int]int)
		for _, one := range t.users {
			n := one.Bytes()
			sum, of[one.sharer] = sum+n, of[one.sharer]+n
		}
		if sum <= t.bytes.users {
			return
		}
		var most *tape
		for _, one := range t.users {
			if most == nil || of[one.sharer] > of[most.sharer] || one.sharer == most.sharer && one.Bytes() > most.Bytes() {
				most = one
			}
		}
		if !most.Drop() {
			return
		}
	}
}

// pastTimeout is how long a reader of a tape may take: what was not read yet stays in memory.
const pastTimeout = time.Minute

// tapePatience is how long a request waits for the first checkpoint of a tape.
const tapePatience = 10 * time.Second

// Past returns the newest events of the viewer's view as a recording.
func (h *Hub) Past(ctx context.Context, v Viewer) (all net.Buffers, err error) {
	for until := time.Now().Add(tapePatience); ; time.Sleep(readInterval) {
		paused := h.pause(ctx, clientOf(ctx, v), func() {
			one := h.tapes.all
			if !v.All {
				one = h.tapes.users[v.UID]
			}
			if one == nil {
				err = fmt.Errorf("nothing is recorded of user %d", v.UID)
				return
			}
			all = one.All(tracing.Now())
		})
		if all != nil || err != nil || paused != nil {
			return all, cmp.Or(err, paused)
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("the state of user %d is still being recorded: try again later", v.UID)
		}
	}
}

// past sends the newest events of the viewer's view as a recording.
func (s *Server) past(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.await(r.Context())
	s.record(w, r, v, s.pasts, func(out io.Writer) error {
		all, err := s.hub.Past(r.Context(), v)
		for until := time.Now().Add(pastTimeout); err == nil && len(all) > 0; all = all[1:] {
			if _, err = out.Write(all[0]); time.Now().After(until) {
				return errTooSlow
			}
		}
		return err
	})
}
