package service

import (
	"net/http"
	"sync"
)

// A limiter bounds a number of concurrent uses, in total and for each user. Root has no separate
// limit, and a reserved part of the total.
type limiter struct {
	what                 string // is too much, and what helps
	total, each, forRoot int

	mu sync.Mutex
	n  int
	by map[int]int
}

func newLimiter(what string, total, each, forRoot int) *limiter {
	return &limiter{what: what, total: total, each: each, forRoot: forRoot, by: make(map[int]int)}
}

// acquire takes one, unless there are too many. Call release once to give it back.
func (l *limiter) acquire(uid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	total, each := l.total-l.forRoot, l.each
	if uid == 0 {
		total, each = l.total, l.total
	}
	if l.n >= total || l.by[uid] >= each {
		return false
	}
	l.n++
	l.by[uid]++
	return true
}

// take is acquire for a request, which it answers if there are too many.
func (l *limiter) take(w http.ResponseWriter, v Viewer) bool {
	ok := l.acquire(v.UID)
	if !ok {
		busy(w, l.what)
	}
	return ok
}

func (l *limiter) release(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.by[uid]--; l.by[uid] == 0 {
		delete(l.by, uid)
	}
}
