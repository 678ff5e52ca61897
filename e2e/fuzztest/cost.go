package fuzztest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long something may take that must end. Most of it takes milliseconds, but the
// machine may be busy.
const patience = 2 * time.Minute

// Ends calls do, and ends the test with the stacks of all goroutines if it does not return.
func Ends(what string, do func()) {
	stuck := time.AfterFunc(patience, func() { panic(fmt.Sprintf("%s has not ended after %v", what, patience)) })
	defer stuck.Stop()
	do()
}

// Proportional fails if the cost of work grows faster than its size, as it would if each part of an
// input cost something for all others. It compares the processor time of size n with that of an
// eighth: eight times as much is proportional, 64 times is quadratic.
func Proportional(t testing.TB, n int, work func(n int)) {
	t.Helper()
	const tries = 5
	small, large := time.Duration(1<<62), time.Duration(1<<62)
	for range tries { // other programs disturb caches, so the best of some counts
		small, large = min(small, cost(func() { work(n / 8) })), min(large, cost(func() { work(n) }))
		if large < 24*max(small, time.Millisecond) {
			return
		}
	}
	t.Errorf("%v of a processor for size %d, and %v for %d", small, n/8, large, n)
}

// cost is the processor time of work, without that of other goroutines.
func cost(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ThreadTime()
	work()
	return ThreadTime() - before
}

// ThreadTime returns the processor time of the calling thread. getrusage has that of the last tick.
func ThreadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
