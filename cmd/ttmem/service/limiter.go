package service

import "sync"

// A limiter bounds a number of concurrent uses, in total and for each user. Root has no separate
// limit, and a reserved part of the total.
type limiter struct {
	total, each, forRoot int

	mu sync.Mutex
	n  int
	by map[int]int
}

func newLimiter(total, each, forRoot int) *limiter {
	return &limiter{total: total, each: each, forRoot: forRoot, by: make(map[int]int)}
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

func (l *limiter) release(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.by[uid]--; l.by[uid] == 0 {
		delete(l.by, uid)
	}
}
