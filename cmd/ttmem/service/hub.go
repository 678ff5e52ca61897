package service

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/tracer/event"
)

// A Hub has the state of the host and tells followers what changes in it. Apply
// and Flush are for the one goroutine that traces, which waits for nobody but for
// the short time in which a snapshot is taken; everything else may be called from
// anywhere.
type Hub struct {
	mu        sync.Mutex
	state     *aggregate.State
	followers map[*follower]bool
	batch     *batch // what followers have not been given yet
	ended     bool
	// version is ttmem's, for the headers of recordings.
	version string
	// backlog is how many bytes a follower may have before it is cut off.
	backlog int

	// joining is held while what there is is written for somebody, in memory: one
	// after the other.
	joining chan struct{}

	shotMu sync.Mutex
	shot   *aggregate.Snapshot // the latest
	shotAt time.Time
}

// NewHub returns a hub of the state, which belongs to it from then on: the caller
// may read it where it calls Apply.
func NewHub(state *aggregate.State) *Hub {
	return &Hub{
		state: state, followers: make(map[*follower]bool), joining: make(chan struct{}, 1), backlog: backlogBytes,
	}
}

// Apply takes an event.
func (h *Hub) Apply(e *event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Complete(e)
	h.state.Apply(e)
	if len(h.followers) == 0 {
		return
	}
	if h.batch == nil {
		h.batch = &batch{}
	}
	h.batch.add(e)
	if h.batch.bytes >= batchBytes {
		h.flush()
	}
}

// Flush wakes the followers, for what was applied since.
func (h *Hub) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
}

func (h *Hub) flush() {
	if h.batch == nil {
		return
	}
	for f := range h.followers {
		f.push(h.batch, h.backlog)
	}
	h.batch = nil
}

// snapshotAge is how old a snapshot may be: no more than what a record waits in
// the kernel's buffer. However many ask, the state is copied no more often.
const snapshotAge = 10 * time.Millisecond

// Snapshot is what the viewer is shown of the state. It must not be changed.
func (h *Hub) Snapshot(v Viewer) *aggregate.Snapshot {
	h.shotMu.Lock()
	if h.shot == nil || time.Since(h.shotAt) > snapshotAge {
		h.mu.Lock()
		h.shot = h.state.Snapshot()
		h.mu.Unlock()
		h.shotAt = time.Now()
	}
	shot := h.shot
	h.shotMu.Unlock()
	if v.All {
		return shot
	}
	return analyze.ForUser(shot, v.UID)
}

// End ends all followers, who are told that the service has ended.
func (h *Hub) End() {
	h.shotMu.Lock()
	h.shot = nil // the last one is not to lack anything
	h.shotMu.Unlock()
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

// batchBytes is how much is gathered for followers before they are given it.
const batchBytes = 1 << 20

// A batch is events in order. Followers share it; it does not change once they
// have it.
type batch struct {
	events []event.Event
	bytes  int
}

// add copies the event. The list of its cores may be used again by who made it.
func (b *batch) add(e *event.Event) {
	b.events = append(b.events, *e)
	if e.Cores != nil {
		b.events[len(b.events)-1].Cores = slices.Clone(e.Cores)
	}
	b.bytes += int(unsafe.Sizeof(*e)) + len(e.Message) + len(e.Command) + len(e.Cores)*int(unsafe.Sizeof(event.CoreRange{}))
}
