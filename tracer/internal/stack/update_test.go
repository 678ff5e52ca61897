package stack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
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

// A process is updated or dropped by one at a time. Others do not wait for it.
func TestOneUpdateOfAProcessAtATime(t *testing.T) {
	s := NewSpaces(new(host.Readers), func(string) {})
	s.dirty[1], s.underWay[1] = true, true
	s.ended = []kernel.Program{{PID: 1}}
	qt.Check(t, qt.IsFalse(s.updateOne()))
	s.ended = append(s.ended, kernel.Program{PID: 2})
	qt.Check(t, qt.IsTrue(s.updateOne()))
	qt.Check(t, qt.DeepEquals(s.ended, []kernel.Program{{PID: 1}}))
	qt.Check(t, qt.IsFalse(s.isPublished()))
	delete(s.underWay, 1)
	qt.Check(t, qt.IsTrue(s.updateOne()))
	qt.Check(t, qt.HasLen(s.ended, 0))
	qt.Check(t, qt.HasLen(s.underWay, 0))
}

// Changes of a process that does not answer schedule one more update, however many there are.
func TestOneUpdateLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSpaces(new(host.Readers), func(string) {})
		defer s.due.Stop()
		s.changedLater(1)
		time.Sleep(retryAfter / 2)
		s.changedLater(1)
		time.Sleep(retryAfter / 2)
		synctest.Wait()
		qt.Check(t, qt.IsTrue(s.dirty[1]))
		delete(s.dirty, 1)
		time.Sleep(retryAfter)
		synctest.Wait()
		qt.Check(t, qt.HasLen(s.dirty, 0))
		s.changedLater(1)
		time.Sleep(retryAfter)
		synctest.Wait()
		qt.Check(t, qt.IsTrue(s.dirty[1]))
	})
}

// On a busy host an update takes longer, and costs its process no more.
func TestWaitingForAProcessorCostsAProcessNothing(t *testing.T) {
	const ms = time.Millisecond
	before := host.ThreadTime{Ran: 70 * ms, Waited: 900 * ms}
	for _, c := range []struct {
		took  time.Duration
		after host.ThreadTime
		want  time.Duration
	}{
		{100 * ms, host.ThreadTime{Ran: 80 * ms, Waited: 930 * ms}, 25 * ms},
		{100 * ms, host.ThreadTime{Ran: 80 * ms, Waited: 900 * ms}, 100 * ms}, // it waited for something else
		{100 * ms, host.ThreadTime{}, 100 * ms},                               // not counted
	} {
		qt.Check(t, qt.Equals(undelayed(c.took, before, c.after), c.want))
	}
	began := host.TimeOfThread()
	qt.Check(t, qt.IsTrue(began.Ran > 0))
}
