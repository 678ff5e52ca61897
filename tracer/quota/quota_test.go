package quota

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// TestNoUserTakesTheRoomOfOthers: a user has up to a limit, and there is room for one more at all times.
func TestNoUserTakesTheRoomOfOthers(t *testing.T) {
	q := New(100, 300)
	qt.Check(t, qt.IsTrue(q.Take(1, 100)))
	qt.Check(t, qt.IsFalse(q.Take(1, 1)))
	qt.Check(t, qt.IsTrue(q.Take(2, 100)))
	qt.Check(t, qt.IsFalse(q.Take(3, 51)))
	qt.Check(t, qt.IsTrue(q.Take(3, 50)))
	qt.Check(t, qt.IsTrue(q.Take(4, 25)))
	qt.Check(t, qt.IsTrue(q.Take(1, -100)))
	qt.Check(t, qt.Equals(q.Of(1), 0))
	qt.Check(t, qt.IsTrue(q.Take(4, 50)))
}

// TestProcessesOfAUserShare what the user may have, to the last one.
func TestProcessesOfAUserShare(t *testing.T) {
	q := New(1000, 4000)
	var a, b Share
	for n := range 900 {
		qt.Assert(t, qt.IsTrue(a.Hold(q, 1, n+1)))
	}
	n := 0
	for b.Hold(q, 1, n+1) {
		n++
	}
	qt.Check(t, qt.IsTrue(n >= 1000-900-batch && n <= 100), qt.Commentf("%d", n))
	a.Release(q)
	qt.Check(t, qt.IsTrue(b.Hold(q, 1, 1000)))
	qt.Check(t, qt.IsFalse(b.Hold(q, 1, 1001)))
	qt.Check(t, qt.IsTrue(b.Hold(q, 2, 10))) // its user was not known before
	qt.Check(t, qt.Equals(q.Of(1), 0))
	b.Release(q)
	qt.Check(t, qt.Equals(q.Of(2), 0))
}
