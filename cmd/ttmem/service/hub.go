package service

import (
	"context"
	"sync"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// A Hub has the state of the host, and passes events on to followers. Only the tracing goroutine
// may call Apply and Flush, which wait at most for a snapshot. All other methods are safe for
// concurrent use.
type Hub struct {
	mu        sync.Mutex
	state     *aggregate.State
	followers map[*follower]bool
	batch     *batch // events that followers do not have yet
	ended     bool
	marks     uint64 // set by users
	users     *processUsers
	tapes     *tapes
	// version is ttmem's, for the headers of recordings.
	version string
	// backlog is the maximum number of bytes that may wait for a follower.
	backlog int

	// joining: the present state is written to memory for a viewer. pausing: the tracer waits for a
	// viewer. encoding: an answer or a part of a stream is encoded. All clients together keep few
	// processors busy, and one client at most one.
	joining, pausing, encoding *turns

	shotMu sync.Mutex
	shot   *memory.Snapshot // the latest
	shotAt time.Time
}

// NewHub returns a hub that owns the state: the caller may read it only in the goroutine that
// calls Apply.
func NewHub(state *aggregate.State) *Hub {
	users := newProcessUsers()
	return &Hub{
		state: state, followers: make(map[*follower]bool), backlog: backlogBytes,
		users: users, tapes: newTapes(state, users, rootTape, userTapes, recording.RollingPart),
		joining: newTurns(atOnce), pausing: newTurns(1), encoding: newTurns(atOnce),
	}
}

// Apply takes an event.
func (h *Hub) Apply(e *event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Complete(e)
	h.state.Apply(e)
	if e.Kind == event.Mark && e.PID == 0 {
		h.marks++
	}
	user := h.users.userOf(e)
	h.tapes.take(e, user.uid)
	if len(h.followers) == 0 {
		return
	}
	if h.batch == nil {
		h.batch = newBatch()
	}
	h.batch.add(e, user)
	if h.batch.bytes >= batchBytes {
		h.flush()
	}
}

// Marks counts the marks of users that were applied.
func (h *Hub) Marks() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.marks
}

// processesOf returns the ids of the running processes of a user.
func (h *Hub) processesOf(uid int) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.ProcessesOf(uid)
}

// Counts returns how many processes run, how many have ended and how many events were lost.
func (h *Hub) Counts() (running int, exited, lost uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.Counts()
}

// Flush passes on the events that were applied since the last call.
func (h *Hub) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tapes.trim()
	h.flush()
}

func (h *Hub) flush() {
	if h.batch == nil {
		return
	}
	rests := make(map[int]*batch)
	for f := range h.followers {
		f.push(h.batch, rests, h.backlog)
	}
	h.batch = nil
}

const (
	// atOnce is how many clients have something written or encoded at once: one that wants much does
	// not keep the others waiting.
	atOnce = 2
	// pauseShare bounds the time for which the tracer waits for a client, regardless of the kind and
	// number of its requests: one part in this many.
	pauseShare = 10
	// othersWait is how long other clients wait at most after the tracer waited for one. Only those
	// who have very many live buffers make it wait so long that this exceeds their share.
	othersWait = 200 * time.Millisecond
	// snapshotWait is the same for snapshots, which all clients wait for.
	snapshotWait = 400 * time.Millisecond
)

// pause calls work while nothing changes and the tracer waits, as soon as the client's share of the time
// allows.
func (h *Hub) pause(ctx context.Context, c client, work func()) error {
	end, err := h.pausing.take(ctx, c)
	if err != nil {
		return err
	}
	h.mu.Lock()
	began := time.Now()
	work()
	wait := (pauseShare - 1) * time.Since(began)
	h.mu.Unlock()
	others := min(wait, othersWait)
	if c.uid == allUsers {
		wait = min(wait, snapshotWait)
	}
	end(others, wait)
	return nil
}

// snapshotAge is the maximum age of a snapshot: as long as a record waits in the kernel's buffer.
// The state is not copied more often, regardless of the number of requests.
const snapshotAge = 10 * time.Millisecond

// allUsers is the client for which snapshots are made.
const allUsers = -3

// Snapshot returns the viewer's view of the state. It must not be changed. Requests that wait for
// the tracer get the same snapshot.
func (h *Hub) Snapshot(ctx context.Context, v Viewer) (*memory.Snapshot, error) {
	began := time.Now()
	h.shotMu.Lock()
	defer h.shotMu.Unlock()
	if h.shot == nil || h.shotAt.Before(began) && time.Since(h.shotAt) > snapshotAge {
		err := h.pause(ctx, client{uid: allUsers}, func() {
			h.state.SettleUntil(tracing.Now())
			h.shot, h.shotAt = h.state.Snapshot(), time.Now()
		})
		if err != nil {
			return nil, err
		}
	}
	if v.All {
		return h.shot, nil
	}
	return analyze.ForUser(h.shot, v.UID), nil
}

// End ends all followers: their streams end.
func (h *Hub) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
	h.ended = true
	for f := range h.followers {
		f.finish(errEnded)
	}
}

func (h *Hub) leave(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.followers, f)
	if len(h.followers) == 0 {
		h.batch = nil
	}
}
