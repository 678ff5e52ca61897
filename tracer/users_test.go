package tracer

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
)

// A read that never returns holds up its user alone, and what is queued for a user is bounded.
func TestUserQueues(t *testing.T) {
	q := userQueues{waiting: make(map[lane][]func())}
	never := make(chan struct{})
	defer close(never)
	hostile, other := lane{user: 1}, lane{user: 2}
	started := make(chan struct{})
	q.do(hostile, func() { close(started); <-never })
	<-started
	var order []int
	for i := range 3 {
		q.do(other, func() { order = append(order, i) })
	}
	began := time.Now()
	q.wait(100 * time.Millisecond)
	qt.Check(t, qt.IsTrue(time.Since(began) < time.Second))
	qt.Check(t, qt.DeepEquals(order, []int{0, 1, 2}))
	n := 0
	for q.do(hostile, func() {}) {
		n++
	}
	qt.Check(t, qt.IsTrue(n <= maxWaiting), qt.Commentf("%d wait", n))
	qt.Check(t, qt.IsTrue(q.do(lane{user: 1, known: true}, func() {})), qt.Commentf("known libraries do not wait for files"))
}

func TestWaitingMappings(t *testing.T) {
	w := waitingMappings{list: make(map[mappingKey]waitingMapping)}
	mapping := func(n int) host.NewMapping {
		return host.NewMapping{PID: n, File: host.FileID{Inode: uint64(n)}}
	}
	for n := range maxWaitingOfUser {
		isNew, waits := w.add(mapping(n), 1)
		qt.Check(t, qt.IsTrue(isNew && waits))
	}
	isNew, waits := w.add(mapping(1), 1)
	qt.Check(t, qt.IsTrue(!isNew && waits))
	isNew, waits = w.add(mapping(1000), 1)
	qt.Check(t, qt.IsTrue(isNew && !waits))
	_, waits = w.add(mapping(1000), 2)
	qt.Check(t, qt.IsTrue(waits))
	w.remove(mapping(1))
	qt.Check(t, qt.HasLen(w.all(), maxWaitingOfUser))
}
