package service

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Hub has the state of the host, and passes events on to followers. Only the goroutine that
// traces may call Apply and Flush; it waits no longer than it takes to make a snapshot. All
// other methods may be called from any goroutine.
type Hub struct {
	mu        sync.Mutex
	state     *aggregate.State
	followers map[*follower]bool
	batch     *batch // events that followers do not have yet
	ended     bool
	marks     uint64 // that users set
	// version is ttmem's, for the headers of recordings.
	version string
	// backlog is how many bytes a follower may have before it is cut off.
	backlog int

	// joining is held while the present state is written to memory for a viewer: one after
	// the other.
	joining chan struct{}

	shotMu sync.Mutex
	shot   *memory.Snapshot // the latest
	shotAt time.Time
}

// NewHub returns a hub that owns the state: the caller may read it only in the goroutine that
// calls Apply.
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
	if e.Kind == event.Mark && e.PID == 0 {
		h.marks++
	}
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

// Marks counts the marks of users that were applied.
func (h *Hub) Marks() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.marks
}

// Flush passes on the events that were applied since.
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

// snapshotAge is how old a snapshot may be: as long as a record waits in the kernel's buffer.
// The state is not copied more often, whatever the number of requests.
const snapshotAge = 10 * time.Millisecond

// Snapshot is what the viewer may see of the state. It must not be changed.
func (h *Hub) Snapshot(v Viewer) *memory.Snapshot {
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

// End ends all followers: their streams end.
func (h *Hub) End() {
	h.shotMu.Lock()
	h.shot = nil // the last snapshot must have everything
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

// batchBytes is how much is collected before it is passed on to followers.
const batchBytes = 1 << 20

// A batch is events in order. Followers share it; it does not change once they
// have it.
type batch struct {
	events []event.Event
	bytes  int
}

// add copies the event, with the list of its cores, which the tracer uses again.
func (b *batch) add(e *event.Event) {
	b.events = append(b.events, *e)
	if e.Cores != nil {
		b.events[len(b.events)-1].Cores = slices.Clone(e.Cores)
	}
	b.bytes += int(unsafe.Sizeof(*e)) + len(e.Message) + len(e.Command) + len(e.Cores)*int(unsafe.Sizeof(event.CoreRange{}))
}
