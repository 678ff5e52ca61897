// Package backlog divides the time of the event loop among users while it is late: the events of all users wait for each
// other, and one user's may cost the most, whatever it is that they cost.
package backlog

import (
	"runtime"
	"time"

	"ttmem/tracer/host"
)

const (
	// lateNs is how late the loop has to be before anybody's events are skipped. All others wait for so long.
	lateNs = 300e6
	// fairTime is what the events of a user may take of a processor meanwhile, whatever the others' take.
	fairTime = 200 * time.Millisecond
)

// A Backlog counts what the events of each user take while the loop is late. The zero value is a loop that is not.
type Backlog struct {
	late  bool
	ran   time.Duration // of the thread, when the work for user began
	user  int
	took  map[int]time.Duration
	total time.Duration
	// shared is true if there are processes of several users.
	shared bool
	// clock returns how long the thread ran; nil: host.RanOfThread.
	clock func() time.Duration
}

// nobody has no events.
const nobody = -1 << 62

// Is says how late the loop is, in ns; 0: it has done all that there was. shared reports whether there are processes of
// several users.
func (b *Backlog) Is(behindNs uint64, shared func() bool) {
	switch {
	case behindNs == 0 && b.late:
		*b = Backlog{clock: b.clock}
		runtime.UnlockOSThread()
	case behindNs > lateNs && !b.late:
		runtime.LockOSThread() // the clock is the thread's
		if b.clock == nil {
			b.clock = host.RanOfThread
		}
		b.late, b.user, b.took, b.ran = true, nobody, make(map[int]time.Duration), b.clock()
		b.shared = shared()
	case b.late:
		b.Of(nobody)
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
	if b.user != nobody {
		b.took[b.user] += now - b.ran
		b.total += now - b.ran
	}
	b.user, b.ran = user, now
}

// Skips reports whether the events of a user are to be skipped until the loop is no longer late: they took more than
// those of all others.
func (b *Backlog) Skips(user int) bool {
	if !b.late {
		return false
	}
	took := b.took[user]
	return b.shared && took > fairTime && took > b.total/2
}
