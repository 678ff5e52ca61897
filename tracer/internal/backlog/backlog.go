// Package backlog divides the time of the event loop among users while it is late: the events of all users wait for each
// other, and one user's may cost the most, whatever it is that they cost.
package backlog

import (
	"math"
	"runtime"
	"time"

	"ttmem/tracer/host"
)

const (
	// lateNs is how late the loop has to be before anybody's events are skipped. All others wait for so long.
	lateNs = 300e6
	// fairTime is what the events of a user may take of a processor meanwhile, whatever the others' take.
	fairTime = 200 * time.Millisecond
	// A user's events are skipped who takes more than an equal share by a quarter, and at least half of what the user with
	// most takes: whoever takes a little more than others is not why they wait.
	shares, sharesOf = 4, 5
	// mostKept is how many of a user's events are exceptions.
	mostKept = 64
)

// Nobody is the user of work that is for no process.
const Nobody = math.MinInt

// A Backlog counts what the events of each user take while the loop is late. The zero value is a loop that is not.
type Backlog struct {
	late bool
	user int
	ran  time.Duration // of the thread, when the work for user began
	took map[int]time.Duration
	// total is what all work took, and most what that of one user took.
	total, most time.Duration
	// shared is true if there are processes of several users.
	shared bool
	// kept counts the exceptions of each user.
	kept map[int]int
	// gone are the users of processes that have ended meanwhile: some of their events are still waiting.
	gone map[int]int
	// clock returns how long the thread ran; nil: host.RanOfThread.
	clock func() time.Duration
}

// Is says how late the loop is, in ns; 0: it has done all that there was. shared reports whether there are processes of
// several users.
func (b *Backlog) Is(behindNs uint64, shared func() bool) {
	switch {
	case behindNs == 0 && b.late:
		*b = Backlog{clock: b.clock}
		runtime.UnlockOSThread()
	case b.late:
		b.Of(Nobody)
		b.shared = b.shared || shared()
	case behindNs > lateNs:
		runtime.LockOSThread() // the clock is the thread's
		if b.clock == nil {
			b.clock = host.RanOfThread
		}
		*b = Backlog{late: true, user: Nobody, ran: b.clock(), took: make(map[int]time.Duration), kept: make(map[int]int), gone: make(map[int]int), shared: shared(), clock: b.clock}
	}
}

// Late reports whether the loop is late: only then need it call Of.
func (b *Backlog) Late() bool { return b.late }

// Of says whose events take the time from now on.
func (b *Backlog) Of(user int) {
	if user == b.user {
		return
	}
	now := b.clock()
	took := now - b.ran
	if b.total += took; b.user != Nobody {
		b.took[b.user] += took
		b.most = max(b.most, b.took[b.user])
	}
	b.user, b.ran = user, now
}

// Ended says that a process of a user has ended.
func (b *Backlog) Ended(pid, user int) {
	if b.late {
		b.gone[pid] = user
	}
}

// OfEnded returns the user of a process that has ended; Nobody if it is not known.
func (b *Backlog) OfEnded(pid int) int {
	if user, ok := b.gone[pid]; ok {
		return user
	}
	return Nobody
}

// Skips reports whether an event of a user is to be skipped, as are the following ones until the loop is no longer late:
// others wait for them. Of those on which later events depend, some are not.
func (b *Backlog) Skips(user int, later bool) bool {
	if !b.shared { // nor is the loop late, mostly: each record asks
		return false
	}
	took := b.took[user]
	users := time.Duration(max(2, len(b.took))) // those who have no events yet wait, too
	if took <= fairTime || took*shares*users <= b.total*sharesOf || took*2 < b.most {
		return false
	}
	if later && b.kept[user] < mostKept {
		b.kept[user]++
		return false
	}
	return true
}
