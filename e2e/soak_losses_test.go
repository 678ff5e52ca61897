package e2e

import (
	"encoding/json"
	"maps"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// soakLoss is which process lost events, and why.
type soakLoss struct {
	pid   int
	cause string
}

// soakLosses follows a service, and counts the events that any process lost.
type soakLosses struct {
	mu    sync.Mutex
	count map[soakLoss]uint64
	sum   uint64
}

// followLosses counts the losses of a service until the test ends.
func followLosses(t *testing.T, s *server) *soakLosses {
	l := &soakLosses{count: make(map[soakLoss]uint64)}
	stream, err := s.Stream(t.Context())
	qt.Assert(t, qt.IsNil(err))
	go func() {
		for e := (event.Event{}); stream.Next(&e) == nil; {
			if e.Kind == event.Lost {
				l.mu.Lock()
				l.count[soakLoss{e.PID, e.Cause}] += e.Count
				l.sum += e.Count
				l.mu.Unlock()
			}
		}
	}()
	return l
}

// all returns the losses so far, and their sum.
func (l *soakLosses) all() (losses map[soakLoss]uint64, sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.count), l.sum
}

// checkLosses checks that no process has lost events, except those that were killed while they
// loaded the library. It waits until the follower has all losses that the service counts.
func (s *soak) checkLosses() {
	want := s.snapshot(s.t).LostEvents
	waitFor(s.t, "the follower has the service's losses", func() bool { _, sum := s.losses.all(); return sum >= want })
	losses, _ := s.losses.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, n := range losses {
		killed, own := s.pids[l.pid]
		if l.cause == "process ended before its library was traced" && (killed || !own) {
			continue
		}
		s.t.Errorf("process %d lost %d events: %s", l.pid, n, l.cause)
	}
}

// checkRecorded checks that the recording lost nothing more: its newest file has the sum.
func (s *soak) checkRecorded(file string) {
	stdout, stderr, status := runTtmem(s.t, nil, "report", "--json", file)
	qt.Assert(s.t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	var recorded memory.Snapshot
	qt.Assert(s.t, qt.IsNil(json.Unmarshal([]byte(stdout), &recorded)))
	_, sum := s.losses.all()
	qt.Check(s.t, qt.Equals(recorded.LostEvents, sum))
}
