// Package service runs ttmem as a service of the host: one tracer, and any number of users who
// query it over a socket.
//
// A Hub has the state and its followers, a Server answers requests over HTTP, and a Client sends
// requests.
// It is not part of ttmem's Go library: it changes without notice.
package service

import (
	"errors"

	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
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

// Users of an event that is not of one user: viewers who see everything may see it, and all others or none.
const (
	everyone = -10 - iota
	unknown
)

// users returns which users' processes are visible; nil if all are.
func (v Viewer) users() func(uid int) bool {
	if v.All {
		return nil
	}
	return func(uid int) bool { return uid == v.UID }
}

// sees reports whether a viewer may see an event of a user.
func (v Viewer) sees(user int) bool { return v.All || user == v.UID || user == everyone }

// An eventUser is whose an event is.
type eventUser struct {
	uid    int // who may see it
	sharer int // to whom it counts: tracing.Sharer
}

// processUsers know whose events are. A process belongs to a user from its start to its end; before and
// after, its id may belong to a process of another user.
type processUsers struct {
	of      map[int]eventUser // by process
	running map[int]int       // processes of each user
}

func newProcessUsers() *processUsers {
	return &processUsers{of: make(map[int]eventUser), running: make(map[int]int)}
}

// userOf returns the user of an event. It must be called with all events, in order.
func (p *processUsers) userOf(e *event.Event) eventUser {
	switch {
	case e.Kind == event.Mark && e.PID == 0: // a user's own: its name may be private
		return eventUser{e.UID, tracing.Sharer(e.CountsTo(), 0)}
	case e.Kind == event.Lost && e.PID == 0:
		return eventUser{everyone, everyone}
	case e.Kind == event.ProcessStart:
		p.end(e.PID)
		p.of[e.PID] = eventUser{e.UID, tracing.Sharer(e.CountsTo(), e.PID)}
		p.running[e.UID]++
	}
	user, isKnown := p.of[e.PID]
	if !isKnown {
		return eventUser{unknown, unknown}
	}
	if e.Kind == event.ProcessExit {
		p.end(e.PID)
	}
	return user
}

func (p *processUsers) end(pid int) {
	user, isKnown := p.of[pid]
	if !isKnown {
		return
	}
	delete(p.of, pid)
	if p.running[user.uid]--; p.running[user.uid] == 0 {
		delete(p.running, user.uid)
	}
}

// errTooSlow ends a follower that reads more slowly than events come.
var errTooSlow = errors.New("the reader was too slow, and was cut off")

// errEnded ends all followers.
var errEnded = errors.New("the service has ended")
