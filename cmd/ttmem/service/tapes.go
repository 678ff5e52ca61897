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
	state *aggregate.State
	// processes are the hub's.
	processes *processUsers
	all       *tape         // of viewers who see everything
	users     map[int]*tape // by user id
	// bytes are the most that root's tape has, and all others together.
	bytes struct{ root, users int }
}

// A tape is that of one viewer.
type tape struct {
	*recording.Rolling
	sharer int    // to whom its user counts
	latest uint64 // the time of the latest event of its user
}

func newTapes(state *aggregate.State, processes *processUsers, root, users int) *tapes {
	t := &tapes{state: state, processes: processes, users: make(map[int]*tape)}
	t.bytes.root, t.bytes.users = root, users
	t.all = t.begin(Viewer{All: true}, 0, root)
	return t
}

func (t *tapes) begin(v Viewer, sharer, most int) *tape {
	r, err := recording.NewRolling(recording.NewHeader(), most, func() func() *event.Event { return t.state.Freeze(v.users()) })
	if err != nil {
		return nil
	}
	return &tape{Rolling: r, sharer: sharer}
}

// take takes an event of a user, which the state has.
func (t *tapes) take(e *event.Event, user int) {
	t.all.Add(e)
	switch one := t.users[user]; {
	case user == everyone:
		for _, one := range t.users {
			one.Add(e)
		}
	case one != nil:
		one.Add(e)
		one.latest = e.TimeNs
	case user > 0 && (e.Kind == event.ProcessStart || e.PID == 0) && t.makeRoom(e.CountsTo()): // root sees everything
		if one := t.begin(Viewer{UID: user}, e.CountsTo(), t.bytes.users); one != nil { // its checkpoint has the event
			t.users[user], one.latest = one, e.TimeNs
		}
	}
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
		if t.processes.running[uid] == 0 && (has < maxTapesPerUser || one.sharer == sharer) && (idle < 0 || one.latest < t.users[idle].latest) {
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
