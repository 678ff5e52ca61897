package stack

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// pace says when files may be read: not while a library is attached to, and large ones in turn.
type pace struct {
	// closing is done when work in the background has to end.
	closing context.Context
	// pausedUntil is when the reading of files continues after a Pause.
	pausedUntil atomic.Int64
}

// largePatience is how long a large file waits for another one, which may be on a file system
// that does not answer.
const largePatience = 10 * time.Second

// take waits for a turn, and returns a function that gives it back.
func (p *pace) take(turn chan struct{}) (giveBack func()) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }
	case <-p.closing.Done():
	case <-time.After(largePatience):
	}
	return func() {}
}

// check waits while a library is being attached to. Its error says that tracing ends.
func (p *pace) check() error {
	p.await()
	select {
	case <-p.closing.Done():
		return errStopped
	default:
		return nil
	}
}

// maxPause bounds how long the reading of files is suspended, because a library may be on a file
// system that does not answer.
const maxPause = time.Second

// pause suspends the reading of files until resume is called, or for maxPause, so that attaching
// to a library is quick.
func (p *pace) pause() (resume func()) {
	p.pausedUntil.Store(time.Now().Add(maxPause).UnixNano())
	return func() { p.pausedUntil.Store(0) }
}

// each calls do for 0 to n-1 on all processors. Attaching to a library takes precedence.
func (p *pace) each(n int, do func(i int)) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.NumCPU()) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				p.await()
				do(i)
			}
		})
	}
	wait.Wait()
}

// await returns when no library is being attached to.
func (p *pace) await() {
	for time.Now().UnixNano() < p.pausedUntil.Load() {
		time.Sleep(time.Millisecond)
	}
}
