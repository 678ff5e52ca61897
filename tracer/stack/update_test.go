package stack

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
)

// A process whose updates take long waits for others, and then for a while.
func TestUpdatesAreShared(t *testing.T) {
	s := NewSpaces(new(host.Readers), func(string) {})
	s.byPID[1] = &space{took: 3 * updateBurst, tookUntil: time.Now()}
	s.byPID[2] = &space{took: updateBurst / 2, tookUntil: time.Now()}
	s.byPID[3] = &space{took: updateBurst, tookUntil: time.Now().Add(-2 * updateShare * updateBurst)}
	s.byPID[4] = &space{took: updateBurst / 4, tookUntil: time.Now()}
	for pid := range s.byPID {
		s.dirty[pid] = true
	}
	for _, want := range []int{3, 4, 2} {
		pid, any := s.next()
		qt.Check(t, qt.IsTrue(any))
		qt.Check(t, qt.Equals(pid, want))
		delete(s.dirty, pid)
	}
	_, any := s.next()
	qt.Check(t, qt.IsFalse(any))
	s.charge(2, updateBurst)
	qt.Check(t, qt.IsTrue(s.byPID[2].debt() > updateBurst))
}
