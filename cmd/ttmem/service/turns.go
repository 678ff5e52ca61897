package service

import (
	"context"
	"sync"
	"time"
)

// turns let clients do something one after the other: each client has one turn at a time, and a few
// clients have theirs at once. However much a client wants, another one waits for one turn of it at most.
type turns struct {
	slots chan struct{}

	mu sync.Mutex
	by map[client]*queue
}

// A queue is that of a client that has a turn or waits for one.
type queue struct {
	turn chan struct{} // holds one element while the client has its turn
	n    int           // of requests that have or want it
}

func newTurns(atOnce int) *turns {
	return &turns{slots: make(chan struct{}, atOnce), by: make(map[client]*queue)}
}

// take waits for a turn. The returned function ends it: for the other clients after a pause, and for
// this one after a longer one.
func (t *turns) take(ctx context.Context, c client) (end func(others, own time.Duration), err error) {
	t.mu.Lock()
	q := t.by[c]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		t.by[c] = q
	}
	q.n++
	t.mu.Unlock()
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		t.leave(c, q)
		return nil, ctx.Err()
	}
	endOwn := func() { <-q.turn; t.leave(c, q) }
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		endOwn()
		return nil, ctx.Err()
	}
	return func(others, own time.Duration) {
		after(others, func() { <-t.slots })
		after(own, endOwn)
	}, nil
}

func (t *turns) leave(c client, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.n--; q.n == 0 {
		delete(t.by, c)
	}
}

func after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// during calls work in a turn of a client.
func (t *turns) during(ctx context.Context, c client, work func() error) error {
	end, err := t.take(ctx, c)
	if err != nil {
		return err
	}
	defer end(0, 0)
	return work()
}
