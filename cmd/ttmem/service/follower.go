package service

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"ttmem/tracer/event"
)

// backlogBytes is how many bytes of events may wait for a follower before it is cut off.
// Followers share the events, so that this is what all of them together cost at most.
const backlogBytes = 64 << 20

// flushInterval is how long events are collected before they are sent: a write and a
// compressed block for each of the tracer's batches would be many small ones.
const flushInterval = 50 * time.Millisecond

// A follower gets the events from now on.
type follower struct {
	sight *sight
	wake  chan struct{} // has room for one: there is a batch to take

	mu      sync.Mutex
	pending []*batch
	taken   *batch
	bytes   int   // of both
	end     error // why nothing more comes
	missed  int   // events that were dropped for that
}

func newFollower(v Viewer) *follower {
	return &follower{sight: newSight(v), wake: make(chan struct{}, 1)}
}

// push hands over a batch, or cuts off a follower that has too many.
func (f *follower) push(b *batch, backlog int) {
	f.mu.Lock()
	switch {
	case f.end != nil:
	case f.bytes+b.bytes > backlog:
		f.end = errTooSlow
		for _, b := range append(f.pending, b) {
			f.missed += len(b.events)
		}
		f.pending = nil
	default:
		f.pending = append(f.pending, b)
		f.bytes += b.bytes
	}
	f.mu.Unlock()
	f.ring()
}

func (f *follower) finish(why error) {
	f.mu.Lock()
	if f.end == nil {
		f.end = why
	}
	f.mu.Unlock()
	f.ring()
}

func (f *follower) ring() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns the oldest batch, which counts until the next one is taken. If there is none
// it returns nil and, if none will follow, why.
func (f *follower) take() (*batch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken != nil {
		f.bytes -= f.taken.bytes
		f.taken = nil
	}
	if len(f.pending) == 0 {
		return nil, f.end
	}
	f.taken, f.pending = f.pending[0], f.pending[1:]
	return f.taken, nil
}

// Follow writes a recording of what the viewer may see: the present state, and the events from
// then on, until the context is done, the hub ends, the writer fails, or it is so slow that it
// is cut off. If the writer has a method Flush() error, that is called after complete blocks.
func (h *Hub) Follow(ctx context.Context, v Viewer, w io.Writer) error {
	f := newFollower(v)
	defer h.leave(f)
	out, err := h.join(ctx, f.sight, f)
	if err != nil {
		return err
	}
	if err := out.send(w); err != nil {
		return err
	}
	var latest uint64
	for {
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wake:
		}
		for {
			b, end := f.take()
			if end != nil {
				if f.missed > 0 { // it does not change any more
					_ = out.add(&event.Event{Kind: event.Lost, TimeNs: latest, Count: uint64(f.missed), Cause: end.Error()})
				}
				return errors.Join(end, out.close())
			}
			if b == nil {
				break
			}
			latest = b.events[len(b.events)-1].TimeNs
			for i := range b.events {
				if e := &b.events[i]; f.sight.shows(e) {
					if err := out.add(e); err != nil {
						return err
					}
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(flushInterval):
		}
	}
}

// WriteState writes the present state, as far as the viewer may see it, as a recording.
func (h *Hub) WriteState(ctx context.Context, v Viewer, w io.Writer) error {
	out, err := h.join(ctx, newSight(v), nil)
	if err != nil {
		return err
	}
	if err := out.send(w); err != nil {
		return err
	}
	return out.close()
}
