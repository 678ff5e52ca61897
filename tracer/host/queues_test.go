package host

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// A read that never returns holds up its user alone, and what is queued for a user is bounded.
func TestUserQueues(t *testing.T) {
	var q Queues
	never := make(chan struct{})
	defer close(never)
	hostile, other := Lane{User: 1}, Lane{User: 2}
	started := make(chan struct{})
	q.Do(hostile, func() { close(started); <-never })
	<-started
	var order []int
	for i := range 3 {
		q.Do(other, func() { order = append(order, i) })
	}
	done := make(chan struct{})
	q.Do(other, func() { close(done) })
	fuzztest.Ends("the other user's work", func() { <-done })
	fuzztest.Ends("waiting for a moment", func() { qt.Check(t, qt.IsFalse(q.Wait(100*time.Millisecond))) })
	qt.Check(t, qt.DeepEquals(order, []int{0, 1, 2}))
	n := 0
	for q.Do(hostile, func() {}) {
		n++
	}
	qt.Check(t, qt.IsTrue(n <= maxWaiting), qt.Commentf("%d wait", n))
	qt.Check(t, qt.IsTrue(q.Do(Lane{User: 1, Known: true}, func() {})), qt.Commentf("known libraries do not wait for files"))
}

func TestWaitingMappings(t *testing.T) {
	const maxWaitingOfUser = 64
	w := WaitingMappings{MostOfUser: maxWaitingOfUser}
	mapping := func(n int) NewMapping {
		return NewMapping{PID: n, Mapping: Mapping{File: FileID{Inode: uint64(n)}}}
	}
	for n := range maxWaitingOfUser {
		isNew, waits := w.Add(mapping(n), 1)
		qt.Check(t, qt.IsTrue(isNew && waits))
	}
	isNew, waits := w.Add(mapping(1), 1)
	qt.Check(t, qt.IsTrue(!isNew && waits))
	isNew, waits = w.Add(mapping(1000), 1)
	qt.Check(t, qt.IsTrue(isNew && !waits))
	_, waits = w.Add(mapping(1000), 2)
	qt.Check(t, qt.IsTrue(waits))
	w.Remove(mapping(1))
	qt.Check(t, qt.HasLen(w.All(), maxWaitingOfUser))
}
