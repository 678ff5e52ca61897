package service

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestVisibilityFollowsTheOwnerOfAProcess: a process belongs to a user from its start to its
// end; before and after, its id may belong to a process of another user.
func TestVisibilityFollowsTheOwnerOfAProcess(t *testing.T) {
	const own, other = 1000, 2000
	users := newProcessUsers()
	for i, step := range []struct {
		e     event.Event
		shown bool
	}{
		{event.Event{Kind: event.Alloc, PID: 1}, false}, // its user is not known
		{event.Event{Kind: event.ProcessStart, PID: 1, UID: own}, true},
		{event.Event{Kind: event.Alloc, PID: 1}, true},
		{event.Event{Kind: event.ProcessExit, PID: 1}, true},
		{event.Event{Kind: event.Free, PID: 1}, false},
		{event.Event{Kind: event.ProcessStart, PID: 1, UID: own}, true},
		{event.Event{Kind: event.ProcessStart, PID: 1, UID: other}, false}, // its end was lost
		{event.Event{Kind: event.Alloc, PID: 1}, false},
		{event.Event{Kind: event.Lost, Count: 1}, true},
		{event.Event{Kind: event.Lost, PID: 1, Count: 1}, false},
		{event.Event{Kind: event.Mark, UID: own}, true},
		{event.Event{Kind: event.Mark, UID: other}, false},
		{event.Event{Kind: event.Mark, PID: 1, UID: own}, false}, // by a call of its process
		{event.Event{Kind: event.Checkpoint}, false},
	} {
		qt.Check(t, qt.Equals(Viewer{UID: own}.sees(users.userOf(&step.e).uid), step.shown), qt.Commentf("step %d: %s", i, step.e.Kind))
	}
}

func TestOnlyRootIsShownAll(t *testing.T) {
	qt.Check(t, qt.IsTrue(viewerOf(0).All))
	for _, v := range []Viewer{viewerOf(1), viewerOf(65534), viewerOf(1<<32 - 1), Nobody} {
		qt.Check(t, qt.IsFalse(v.All))
		for _, e := range []event.Event{{Kind: event.Alloc, PID: 2}, {Kind: event.ProcessStart, PID: 1}, {Kind: event.Alloc, PID: 1}} {
			qt.Check(t, qt.IsFalse(v.sees(newProcessUsers().userOf(&e).uid)))
		}
	}
}
