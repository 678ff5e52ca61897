// Package service is ttmem as a service of the host: one engine that traces, and
// any number of users who ask it over a socket what is going on.
//
// A Hub has the state and those who follow it, a Server answers over HTTP, and a
// Client asks.
package service

import (
	"errors"

	"ttmem/tracer/event"
)

// DefaultSocket is where the service is asked unless another path is given.
const DefaultSocket = "/run/ttmem.sock"

// Protocol is the version of what is said over the socket. It is in the paths:
// /v1/snapshot.
const Protocol = 1

// A Viewer is who asks, and so what is shown: of other users' processes only what
// they take of the chips in all.
type Viewer struct {
	// UID is the user whose processes are shown.
	UID int
	// All is true for who is shown everything.
	All bool
}

// Nobody is a viewer who is shown no process at all: nothing is known of who asks
// over TCP.
var Nobody = Viewer{UID: -1}

// viewerOf is what the user of that id is shown: root everything.
func viewerOf(uid uint32) Viewer { return Viewer{UID: int(uid), All: uid == 0} }

// A sight tells the events that a viewer is shown from the others.
type sight struct {
	viewer Viewer
	// own are the viewer's processes: those that ran when it began, and then by what
	// their ProcessStart said.
	own map[int]bool
}

func newSight(v Viewer) *sight { return &sight{viewer: v, own: make(map[int]bool)} }

// shows reports whether the viewer is shown the event. It has to see all that come after
// the Checkpoint, in order. What comes from a process whose user was never told is root's alone.
func (s *sight) shows(e *event.Event) bool {
	switch {
	case s.viewer.All:
		return true
	case e.Kind == event.Mark && e.PID == 0: // a user's own: names tell what he does
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

// errTooSlow ends a follower that does not read what happens as fast as it does.
var errTooSlow = errors.New("the reader was too slow, and was cut off")

// errEnded ends all followers.
var errEnded = errors.New("the service has ended")
