package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// The bounds of what tapes have: bytes of root's and of all others together, and how many there are. Root's is
// in memory also with -o, whose file may be a pipe, on a full disk, or moved.
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
	// bytes are the most that root's tape has, all others together, and usually a part of one.
	bytes struct{ root, users, part int }
}

// A tape is that of one viewer.
type tape struct {
	*recording.Rolling
	sharer int    // to whom its user counts
	latest uint64 // the time of the latest event of its user
}

func newTapes(state *aggregate.State, processes *processUsers, root, users, part int) *tapes {
	t := &tapes{state: state, processes: processes, users: make(map[int]*tape)}
	t.bytes.root, t.bytes.users, t.bytes.part = root, users, part
	t.all = t.begin(Viewer{All: true}, 0)
	return t
}

func (t *tapes) begin(v Viewer, sharer int) *tape {
	r, err := recording.NewRolling(recording.NewHeader(), t.bytes.part, func() func() *event.Event { return t.state.Freeze(v.users()) })
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
		if one := t.begin(Viewer{UID: user}, e.CountsTo()); one != nil { // its checkpoint has the event
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
	t.all.Trim(t.bytes.root)
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

// Newest returns an excerpt of the tape of viewers who see everything, as recording.Rolling's method does.
func (h *Hub) Newest(events uint64, most int) recording.Excerpt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.excerpt(h.tapes.all, events, most)
}

func (h *Hub) excerpt(of *tape, events uint64, most int) recording.Excerpt {
	of.Header.Ttmem = h.version
	return of.Newest(events, most, tracing.Now())
}

// Past returns at least as many of the newest events of the viewer's view, as a recording.
func (h *Hub) Past(ctx context.Context, v Viewer, events uint64) (e recording.Excerpt, err error) {
	paused := h.pause(ctx, clientOf(ctx, v), func() {
		one := h.tapes.all
		if !v.All {
			one = h.tapes.users[v.UID]
		}
		if one == nil {
			err = fmt.Errorf("nothing is recorded of user %d", v.UID)
			return
		}
		e = h.excerpt(one, events, 0)
	})
	return e, cmp.Or(err, paused)
}

// pastTimeout is how long a reader of a tape may take: what was not read yet stays in memory.
const pastTimeout = time.Minute

// past sends the newest events of the viewer's view as a recording.
func (s *Server) past(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.await(r.Context())
	s.record(w, r, v, s.pasts, func(out io.Writer) error {
		past, err := s.hub.Past(r.Context(), v, math.MaxUint64)
		for until := time.Now().Add(pastTimeout); err == nil && len(past.Data) > 0; past.Data = past.Data[1:] {
			if _, err = out.Write(past.Data[0]); time.Now().After(until) {
				return errTooSlow
			}
		}
		return err
	})
}
