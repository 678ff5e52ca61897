package service

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	processes "ttmem/tracer/host"
)

// A client whose answers have taken much has normal priority for a while, and no other one.
func TestCostsOfAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
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

// The time of an answer counts.
func TestCostOfAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all in one interval
		var c costs
		of := client{uid: 1}
		c.during(of, func() {
			for until := processes.RanOfThread() + 20*time.Millisecond; processes.RanOfThread() < until; {
			}
		})
		qt.Check(t, qt.IsTrue(c.add(of, 0) >= 20*time.Millisecond))
		qt.Check(t, qt.IsTrue(c.add(of, 0) < time.Second))
	})
}
