package host

// This file gives up reads in /proc that do not return. A process can keep the lock of its address
// space, as in an mmap(2) that replaces the mapping of a file that its user serves over FUSE. What
// /proc shows of its mappings waits for that lock. Such a wait does not keep ttmem from ending, so
// a thread may wait, and a child process as for memory (readers.go) is not needed.

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A silence is of an owner of processes: reads of them that have not returned.
type silence struct {
	waiting int    // reads that have not returned
	untilNs uint64 // until when nothing is read after they have
}

var (
	silencesLock sync.Mutex
	silences     = make(map[int]*silence) // by ownerOf
	// waiters are idle threads.
	waiters = make(chan chan func(), 8)
	// answerPatience is how long such a read may take: tests shorten it.
	answerPatience = ReadPatience
)

// silenceFactor is how much longer than the wait the processes of an owner are not read after it,
// so that one user takes a tenth of the time at most.
const silenceFactor = 10

// TryLater reports whether a file of a process could not be opened or read now, but perhaps later.
func TryLater(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, ErrNoAnswer) }

// answered returns what a read of a process's files in /proc returns. It gives up a read that takes
// too long, and those of the owner's other processes until that has returned and some time after.
func answered[T any](pid int, read func() (T, error)) (value T, err error) {
	if isSilent(pid) {
		return value, ErrNoAnswer
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	wait(func() {
		value, err := read()
		results <- result{value, err}
	})
	began := Now()
	select {
	case r := <-results:
		return r.value, r.err
	case <-time.After(answerPatience):
	}
	owner := ownerOf(pid)
	silencesLock.Lock()
	s := silences[owner]
	if s == nil {
		s = &silence{}
		silences[owner] = s
	}
	s.waiting++
	silencesLock.Unlock()
	go func() {
		<-results
		silencesLock.Lock()
		defer silencesLock.Unlock()
		s.waiting--
		s.untilNs = max(s.untilNs, Now()+silenceFactor*(Now()-began))
	}()
	return value, ErrNoAnswer
}

// isSilent reports whether the processes of the owner of a process are not read.
func isSilent(pid int) bool {
	silencesLock.Lock()
	defer silencesLock.Unlock()
	if len(silences) == 0 {
		return false // the usual case
	}
	owner := ownerOf(pid)
	s := silences[owner]
	if s != nil && s.waiting == 0 && Now() >= s.untilNs {
		delete(silences, owner)
		s = nil
	}
	return s != nil
}

// ownerOf returns a number for the user of a process. Each process of root has its own.
func ownerOf(pid int) int {
	if user := RealUser(pid); user != 0 {
		return user
	}
	return 1<<32 | pid
}

// wait calls a function on a thread that can be left behind.
func wait(f func()) {
	var to chan func()
	select {
	case to = <-waiters:
	default:
		to = make(chan func())
		go func() {
			RaisePriority()
			for f := range to {
				f()
				select {
				case waiters <- to:
				default:
					return
				}
			}
		}()
	}
	to <- f
}
