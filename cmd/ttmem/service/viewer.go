// Package service runs ttmem as a service of the host: one tracer, and any number of users who
// query it over a socket.
//
// A Hub has the state and its followers, a Server answers requests over HTTP, and a Client sends
// requests.
package service

import (
	"errors"

	"ttmem/tracer/event"
)

// DefaultSocket is the path of the service's socket unless another one is given.
const DefaultSocket = "/run/ttmem.sock"

// Protocol is the version of the protocol of the socket. It is in the paths: /v1/snapshot.
const Protocol = 1

// A Viewer is a user who sends requests, with the right to see some processes. Of other processes
// a viewer sees only the totals on each chip.
type Viewer struct {
	// UID is the user whose processes are visible.
	UID int
	// All is true if everything is visible.
	All bool
}

// viewerOf is the viewer of a user id. Root sees everything.
func viewerOf(uid uint32) Viewer { return Viewer{UID: int(uid), All: uid == 0} }

// A sight selects the events that a viewer may see.
type sight struct {
	viewer Viewer
	// own are the viewer's processes: those that ran at the beginning, and later those whose
	// ProcessStart has the viewer's user id.
	own map[int]bool
}

func newSight(v Viewer) *sight { return &sight{viewer: v, own: make(map[int]bool)} }

// shows reports whether the viewer may see the event. It must be called with all events after
// the Checkpoint, in order. Only root sees the events of a process whose user is not known.
func (s *sight) shows(e *event.Event) bool {
	switch {
	case s.viewer.All:
		return true
	case e.Kind == event.Mark && e.PID == 0: // a user's own: its name may be private
		return e.UID == s.viewer.UID
	case e.PID == 0: // of no process
		return e.Kind == event.Lost
	case e.Kind == event.ProcessStart:
		delete(s.own, e.PID)
		if e.UID == s.viewer.UID {
			s.own[e.PID] = true
		}
	}
	shown := s.own[e.PID]
	if e.Kind == event.ProcessExit {
		delete(s.own, e.PID)
	}
	return shown
}

// errTooSlow ends a follower that reads more slowly than events come.
var errTooSlow = errors.New("the reader was too slow, and was cut off")

// errEnded ends all followers.
var errEnded = errors.New("the service has ended")
