package service

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// limitPatience is how long a request waits until its client does less at once. What a client ends
// takes a moment to end here.
const limitPatience = 2 * time.Second

// A limiter bounds a number of concurrent uses, in total and for each client. Root has no separate
// limit, and a reserved part of the total.
type limiter struct {
	what                 string // is limited
	total, each, forRoot int

	mu    sync.Mutex
	n     int
	by    map[client]int
	freed chan struct{} // closed at the next release
}

func newLimiter(what string, total, each, forRoot int) *limiter {
	return &limiter{what: what, total: total, each: each, forRoot: forRoot, by: make(map[client]int), freed: make(chan struct{})}
}

// acquire takes one, unless there are too many: then it says which. Call release once to give it back.
func (l *limiter) acquire(c client) (tooMany string) {
	tooMany, _ = l.try(c)
	return tooMany
}

// try is acquire; freed is closed when there may be one.
func (l *limiter) try(c client) (tooMany string, freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total, each := l.total-l.forRoot, l.each
	if c.uid == 0 {
		total, each = l.total, l.total
	}
	switch {
	case l.by[c] >= each:
		return fmt.Sprintf("too many %s at once: you have %d: close some, or try again later", l.what, each), l.freed
	case l.n >= total:
		return fmt.Sprintf("too many %s at once of all users: try again later", l.what), l.freed
	}
	l.n++
	l.by[c]++
	return "", nil
}

// take is acquire for a request, which waits for a while, and is answered if there are too many.
func (l *limiter) take(ctx context.Context, w http.ResponseWriter, c client) bool {
	patience := time.NewTimer(limitPatience)
	defer patience.Stop()
	for {
		tooMany, freed := l.try(c)
		if tooMany == "" {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		case <-patience.C:
			busy(w, tooMany)
			return false
		}
	}
}

func (l *limiter) release(c client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.by[c]--; l.by[c] == 0 {
		delete(l.by, c)
	}
	close(l.freed)
	l.freed = make(chan struct{})
}

// A tally adds up what each client does in the present interval.
type tally struct {
	mu       sync.Mutex
	interval int64
	by       map[client]int64
}

// add adds what a client did, and returns its sum. Intervals have the same length at each call.
func (t *tally) add(c client, n int64, length time.Duration, now time.Time) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := now.UnixNano() / int64(length); t.by == nil || i != t.interval {
		t.interval, t.by = i, make(map[client]int64)
	}
	t.by[c] += n
	return t.by[c]
}
