package service

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	processes "ttmem/tracer/host"
)

// A client whose answers have taken much has normal priority for a while, and no other one.
func TestCostsOfAnswers(t *testing.T) {
	tracetest.NeedsRoot(t)
	defer processes.RaisePriority()()
	synctest.Test(t, func(t *testing.T) {
		var c costs
		niceness := func(of client) (is int) {
			c.during(of, func() {
				rank, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
				qt.Assert(t, qt.IsNil(err))
				is = 20 - rank
			})
			return is
		}
		one, other := client{uid: 1}, client{uid: 2}
		qt.Check(t, qt.Equals(niceness(one), processes.RaisedNiceness))
		c.add(one, maxRaised)
		qt.Check(t, qt.Equals(niceness(one), 0))
		qt.Check(t, qt.Equals(niceness(other), processes.RaisedNiceness))
		time.Sleep(costInterval + 1)
		qt.Check(t, qt.Equals(niceness(one), processes.RaisedNiceness))
	})
}

// The time of an answer counts, and no other time of its thread.
func TestCostOfAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all in one interval
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var c costs
		of := client{uid: 1}
		before := processes.RanOfThread()
		c.during(of, func() {
			for until := processes.RanOfThread() + 20*time.Millisecond; processes.RanOfThread() < until; {
			}
		})
		all := processes.RanOfThread() - before
		qt.Check(t, qt.IsTrue(c.add(of, 0) >= 20*time.Millisecond))
		qt.Check(t, qt.IsTrue(c.add(of, 0) <= all))
	})
}
