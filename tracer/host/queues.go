package host

import (
	"sync"
	"time"
)

// Queues run functions that read the files and the memory of users' processes, one at a time
// for each lane. A file system that a user serves may never answer, which delays only that user. The zero value is usable.
type Queues struct {
	mu      sync.Mutex
	waiting map[Lane][]func() // a goroutine works on each entry
}

// A Lane is a queue of functions. Known libraries do not wait for files that have to be read
// first.
type Lane struct {
	User  int
	Known bool
}

const (
	// maxWaiting bounds the functions that wait in a lane.
	maxWaiting = 1024
	// maxLanes bounds the goroutines, each of which may hang in a read.
	maxLanes = 256
)

// Do runs a function in the background; false if there is no room for it.
func (q *Queues) Do(l Lane, f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, working := q.waiting[l]
	if len(waiting) == maxWaiting || !working && len(q.waiting) == maxLanes {
		return false
	}
	if q.waiting == nil {
		q.waiting = make(map[Lane][]func())
	}
	q.waiting[l] = append(waiting, f)
	if !working {
		go q.work(l)
	}
	return true
}

func (q *Queues) work(l Lane) {
	for {
		q.mu.Lock()
		list := q.waiting[l]
		if len(list) == 0 {
			delete(q.waiting, l)
			q.mu.Unlock()
			return
		}
		q.waiting[l] = list[1:]
		q.mu.Unlock()
		list[0]()
	}
}

// Wait waits until all functions that are queued now are done, or until a timeout, and reports whether they are done.
func (q *Queues) Wait(patience time.Duration) bool {
	done := make(chan struct{}, maxLanes)
	q.mu.Lock()
	lanes := len(q.waiting)
	for l := range q.waiting {
		q.waiting[l] = append(q.waiting[l], func() { done <- struct{}{} })
	}
	q.mu.Unlock()
	limit := time.After(patience)
	for range lanes {
		select {
		case <-done:
		case <-limit:
			return false
		}
	}
	return true
}
