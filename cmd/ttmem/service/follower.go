package service

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ttmem/tracer/event"
)

// backlogBytes is how many bytes of events may wait for a follower before it is cut off. Followers share the events: all of
// them together have at most twice as many, if some have batches and others what rests of these.
const backlogBytes = 64 << 20

// flushInterval is how long events are collected before they are sent: each of the tracer's
// batches would be a small write and a small compressed block.
const flushInterval = 50 * time.Millisecond

// mostShare is the part of the backlog that all events may take. Beyond it a follower gets batches without the events of
// the user of whom most are waiting: a user who floods a host costs slow readers only that user's events.
const mostShare, mostShareOf = 3, 4

// backlogBatches is how many batches may wait for a follower. They are small if few events
// come.
const backlogBatches = 4096

// A follower gets the events from now on.
type follower struct {
	// batches is closed at the end. Then end says why.
	batches chan *batch
	mu      sync.Mutex
	waiting int         // bytes of the batches, and of the one that is being sent
	of      map[int]int // of them, those of each user
	end     error
	// isCut is true if the waiting batches are dropped. missed then counts the lost events.
	isCut  atomic.Bool
	missed int
}

func newFollower() *follower {
	return &follower{batches: make(chan *batch, backlogBatches), of: make(map[int]int)}
}

// push hands over a batch or its rest, or cuts off a follower that has too many. rests are those of the batch, by the user
// without whom they are. The hub must be locked, as for finish.
func (f *follower) push(b *batch, rests map[int]*batch, backlog int) {
	if f.end != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting+b.bytes > backlog*mostShare/mostShareOf {
		most := f.most(b)
		if rests[most] == nil {
			rests[most] = b.without(most)
		}
		b = rests[most]
	}
	if f.waiting+b.bytes <= backlog && len(f.batches) < backlogBatches {
		f.count(b, 1)
		f.batches <- b
		return
	}
	f.missed = b.count()
	f.isCut.Store(true)
	f.finish(errTooSlow)
}

// most returns the user of whom most would be waiting with a batch.
func (f *follower) most(b *batch) (user int) {
	of := maps.Clone(f.of)
	for one, n := range b.of {
		of[one] += n
	}
	most := 0
	for _, one := range slices.Sorted(maps.Keys(of)) {
		if of[one] > most {
			user, most = one, of[one]
		}
	}
	return user
}

// count adds a batch to what is waiting, or subtracts it.
func (f *follower) count(b *batch, by int) {
	f.waiting += by * b.bytes
	for user, n := range b.of {
		if f.of[user] += by * n; f.of[user] == 0 {
			delete(f.of, user)
		}
	}
}

// sent says that a batch no longer waits.
func (f *follower) sent(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(b, -1)
}

func (f *follower) finish(why error) {
	if f.end == nil {
		f.end = why
		close(f.batches)
	}
}

// Follow writes a recording of the viewer's view: the present state and the later events. It ends
// when the context is done, the hub ends, the writer fails, or the writer is so slow that it is
// cut off. If the writer has a method Flush() error, that is called after complete blocks.
func (h *Hub) Follow(ctx context.Context, v Viewer, w io.Writer) error {
	f := newFollower()
	defer h.leave(f)
	out, err := h.join(ctx, v, f)
	if err != nil {
		return err
	}
	if err := out.send(w); err != nil {
		return err
	}
	var latest uint64
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, more := <-f.batches:
			if !more {
				if f.missed > 0 {
					_ = out.add(&event.Event{Kind: event.Lost, TimeNs: latest, Count: uint64(f.missed), Cause: f.end.Error()})
				}
				return errors.Join(f.end, out.close(w))
			}
			if f.isCut.Load() {
				f.missed += b.count()
				continue
			}
			latest = b.events[len(b.events)-1].TimeNs
			isLast := len(f.batches) == 0
			if err := h.encode(ctx, v, b, out, isLast); err != nil {
				return err
			}
			if err := out.send(w); err != nil {
				return err
			}
			f.sent(b)
			if !isLast {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(flushInterval):
		}
	}
}

// encode adds the visible events of a batch to a recording and, after the last batch, flushes it.
// Clients take turns.
func (h *Hub) encode(ctx context.Context, v Viewer, b *batch, out *followed, isLast bool) error {
	return h.encoding.during(ctx, clientOf(ctx, v), func() error {
		for i := range b.events {
			if v.sees(b.users[i].uid) {
				if err := out.add(&b.events[i]); err != nil {
					return err
				}
			}
		}
		if isLast {
			return out.flush()
		}
		return nil
	})
}

// WriteState writes the viewer's view of the present state as a recording.
func (h *Hub) WriteState(ctx context.Context, v Viewer, w io.Writer) error {
	out, err := h.join(ctx, v, nil)
	if err != nil {
		return err
	}
	if err := out.send(w); err != nil {
		return err
	}
	return out.close(w)
}
