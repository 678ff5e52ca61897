package backlog

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

const (
	late = lateNs + 1
	ms   = time.Millisecond
)

// loop is an event loop with a clock of its own.
type loop struct {
	Backlog
	now    time.Duration
	shared bool
}

func newLoop(shared bool) *loop {
	l := &loop{shared: shared}
	l.clock = func() time.Duration { return l.now }
	return l
}

func (l *loop) isShared() bool { return l.shared }

func (l *loop) work(user int, took time.Duration) {
	l.Of(user)
	l.now += took
}

// TestSkips: while the loop is late, the events of the user who keeps it are skipped, and nobody else's.
func TestSkips(t *testing.T) {
	l := newLoop(true)
	l.Is(lateNs, l.isShared)
	qt.Check(t, qt.IsFalse(l.Late()))
	qt.Check(t, qt.IsFalse(l.Skips(1, false)))
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsTrue(l.Late()))
	l.work(1, 150*ms)
	l.work(2, ms)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(1, false)), qt.Commentf("nobody has taken much yet"))
	l.work(1, 60*ms)
	l.work(2, ms)
	l.Is(lateNs/2, l.isShared)
	qt.Check(t, qt.IsTrue(l.Skips(1, false)), qt.Commentf("until nothing is left, also when the loop is less late"))
	for range mostKept {
		qt.Check(t, qt.IsFalse(l.Skips(1, true)))
	}
	qt.Check(t, qt.IsTrue(l.Skips(1, true)), qt.Commentf("these would make it late, too"))
	qt.Check(t, qt.IsFalse(l.Skips(2, false)))
	qt.Check(t, qt.IsFalse(l.Skips(3, false)))
	l.work(2, 600*ms)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(1, false)), qt.Commentf("another user takes much more now"))
	qt.Check(t, qt.IsTrue(l.Skips(2, false)))
	l.Is(0, l.isShared)
	qt.Check(t, qt.IsFalse(l.Late()))
	qt.Check(t, qt.IsFalse(l.Skips(2, false)))
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(2, false)), qt.Commentf("it begins anew"))
	l.Is(0, l.isShared)
}

// TestEqualUsers: users who take the same are not why the others wait, however late the loop is; together two of them
// are.
func TestEqualUsers(t *testing.T) {
	l := newLoop(true)
	l.Is(late, l.isShared)
	l.work(1, 510*ms)
	l.work(2, 500*ms)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(1, false)))
	qt.Check(t, qt.IsFalse(l.Skips(2, false)))
	l.work(3, 10*ms)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsTrue(l.Skips(1, false)))
	qt.Check(t, qt.IsTrue(l.Skips(2, false)))
	qt.Check(t, qt.IsFalse(l.Skips(3, false)))
	l.Is(0, l.isShared)
}

// TestWorkForNobody: time that is for no process is no user's, and makes none of them the one with most.
func TestWorkForNobody(t *testing.T) {
	l := newLoop(true)
	l.Is(late, l.isShared)
	l.work(Nobody, 0)
	l.now += time.Second
	l.work(1, 250*ms)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(1, false)))
	l.Ended(10, 1)
	qt.Check(t, qt.Equals(l.OfEnded(10), 1))
	qt.Check(t, qt.Equals(l.OfEnded(11), Nobody))
	l.Is(0, l.isShared)
	qt.Check(t, qt.Equals(l.OfEnded(10), Nobody))
}

// TestOnlyUserIsNotSkipped: being late costs nobody else, until a process of another user begins.
func TestOnlyUserIsNotSkipped(t *testing.T) {
	l := newLoop(false)
	l.Is(late, l.isShared)
	l.work(1, time.Minute)
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsFalse(l.Skips(1, false)))
	l.shared = true
	l.Is(late, l.isShared)
	qt.Check(t, qt.IsTrue(l.Skips(1, false)))
	l.Is(0, l.isShared)
}
