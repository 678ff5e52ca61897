package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	processes "ttmem/tracer/host"
)

// A client whose answers have taken much has normal priority for a while, and no other one.
func TestCostsOfAnswers(t *testing.T) {
	restore := processes.RaisePriority()
	defer restore()
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
		raised := niceness(one)
		if raised != processes.RaisedNiceness {
			t.Skip("needs CAP_SYS_NICE")
		}
		c.add(one, maxRaised)
		qt.Check(t, qt.Equals(niceness(one), 0))
		qt.Check(t, qt.Equals(niceness(other), raised))
		time.Sleep(costInterval + 1)
		qt.Check(t, qt.Equals(niceness(one), raised))
	})
}

// The time of an answer counts.
func TestCostOfAnswer(t *testing.T) {
	var c costs
	of := client{uid: 1}
	c.during(of, func() {
		for until := time.Now().Add(20 * time.Millisecond); time.Now().Before(until); {
		}
	})
	qt.Check(t, qt.IsTrue(c.add(of, 0) > 0))
	qt.Check(t, qt.IsTrue(c.add(of, 0) < time.Second))
}
