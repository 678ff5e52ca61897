package backlog

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// TestSkips: while the loop is late, the events of the user who keeps it are skipped, and nobody else's.
func TestSkips(t *testing.T) {
	const late, ms = lateNs + 1, time.Millisecond
	var now time.Duration
	b := Backlog{clock: func() time.Duration { return now }}
	work := func(user int, took time.Duration) {
		b.Of(user)
		now += took
	}
	shared := func() bool { return true }
	b.Is(late-1, shared)
	qt.Check(t, qt.IsFalse(b.Late()))
	qt.Check(t, qt.IsFalse(b.Skips(1)))
	b.Is(late, shared)
	qt.Check(t, qt.IsTrue(b.Late()))
	work(1, 150*ms)
	work(2, ms)
	b.Is(late, shared)
	qt.Check(t, qt.IsFalse(b.Skips(1)), qt.Commentf("nobody has taken much yet"))
	work(1, 60*ms)
	work(2, ms)
	b.Is(lateNs/2, shared)
	qt.Check(t, qt.IsTrue(b.Skips(1)), qt.Commentf("until nothing is left, also when the loop is less late"))
	qt.Check(t, qt.IsFalse(b.Skips(2)))
	qt.Check(t, qt.IsFalse(b.Skips(3)))
	work(2, 300*ms)
	b.Is(late, shared)
	qt.Check(t, qt.IsFalse(b.Skips(1)), qt.Commentf("another user takes more now"))
	qt.Check(t, qt.IsTrue(b.Skips(2)))
	b.Is(0, shared)
	qt.Check(t, qt.IsFalse(b.Late()))
	qt.Check(t, qt.IsFalse(b.Skips(2)))
}

// TestNobodyElseWaits: the events of the only user are never skipped: being late costs only that user.
func TestNobodyElseWaits(t *testing.T) {
	var now time.Duration
	b := Backlog{clock: func() time.Duration { return now }}
	alone := func() bool { return false }
	b.Is(10*lateNs, alone)
	b.Of(1)
	now = time.Minute
	b.Is(10*lateNs, alone)
	qt.Check(t, qt.IsFalse(b.Skips(1)))
	b.Is(0, alone)
}
