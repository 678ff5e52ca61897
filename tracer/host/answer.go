package host

// This file gives up reads in /proc that do not return. A process can keep the lock of its address
// space, as in an mmap(2) that replaces the mapping of a file that its user serves over FUSE. What
// /proc shows of its mappings waits for that lock. Such a wait does not keep ttmem from ending, so
// a thread may wait, and a child process as for memory (readers.go) is not needed.

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A silence is a time in which the processes of an owner are not read: until reads that were given up have returned, and
// while such reads have taken more than the owner's share of the time.
type silence struct {
	waiting int // reads that have not returned
	// tookNs is the time of reads beyond the share, as of atNs
	tookNs, atNs uint64
}

// debtNs is the time that reads have taken beyond the owner's share until now.
func (s *silence) debtNs() uint64 { return s.tookNs - min(s.tookNs, (Now()-s.atNs)/silenceShare) }

// Proc reads files of /proc/PID. A read that does not return is given up, and with it, for a
// while, those of the same owner's other processes. The zero value is ready for use.
type Proc struct {
	patience time.Duration // how long a read may take; 0: ReadPatience

	mu       sync.Mutex
	silences map[int]*silence // by ownerOf
	next     chan func()      // of threads that wait for another read; nil: none did yet
}

// idleTime is how long a thread waits for another read.
const idleTime = time.Second

const (
	// silenceShare is the part of the time that reads may wait for one owner, a tenth.
	silenceShare = 10
	// silenceBurstNs is how long they may wait beyond that without a break. On a busy host a read may have to wait without
	// anybody's fault: a silence after the first one would cost a program the call stacks of half a minute.
	silenceBurstNs = 4e9
)

// TryLater reports whether a file of a process could not be opened or read now, but perhaps later.
func TryLater(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, ErrNoAnswer) }

// answered returns the result of read, a read of a process's files in /proc. It gives up a read
// that takes too long, and then refuses reads of the owner's processes until that one has returned,
// and for some time after if that happens again and again.
func answered[T any](p *Proc, pid int, read func() (T, error)) (value T, err error) {
	if p.isSilent(pid) {
		return value, ErrNoAnswer
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	p.onThread(func() {
		value, err := read()
		results <- result{value, err}
	})
	began := Now()
	ctx, stop := Patient(context.Background(), cmp.Or(p.patience, ReadPatience))
	defer stop()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	owner := ownerOf(pid)
	p.mu.Lock()
	s := p.silences[owner]
	if s == nil {
		s = &silence{}
		if p.silences == nil {
			p.silences = make(map[int]*silence)
		}
		p.silences[owner] = s
	}
	s.waiting++
	p.mu.Unlock()
	go func() {
		<-results
		p.mu.Lock()
		defer p.mu.Unlock()
		s.waiting--
		s.tookNs, s.atNs = s.debtNs()+Now()-began, Now()
	}()
	return value, ErrNoAnswer
}

// isSilent reports whether the processes of the owner of a process are not read.
func (p *Proc) isSilent(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.silences) == 0 {
		return false // the usual case
	}
	owner := ownerOf(pid)
	s := p.silences[owner]
	if s == nil || s.waiting > 0 {
		return s != nil
	}
	debtNs := s.debtNs()
	if debtNs == 0 {
		delete(p.silences, owner)
	}
	return debtNs > silenceBurstNs
}

// ownerOf returns a number for the user of a process. Each process of root has its own.
func ownerOf(pid int) int {
	if user := RealUser(pid); user != 0 {
		return user
	}
	return 1<<32 | pid
}

// onThread calls a function on a thread that can be left behind.
func (p *Proc) onThread(read func()) {
	p.mu.Lock()
	if p.next == nil {
		p.next = make(chan func())
	}
	next := p.next
	p.mu.Unlock()
	select {
	case next <- read:
	default:
		go func() {
			for again := true; again; {
				read()
				select {
				case read = <-next:
				case <-time.After(idleTime):
					again = false
				}
			}
		}()
	}
}
