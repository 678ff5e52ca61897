// Package order sorts events by time.
package order

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// A Queue sorts events by time; events of the same time stay in order of arrival. They
// arrive nearly sorted, so sorting a batch costs little more than checking it.
type Queue struct {
	// Events wait, nearly in order.
	Events []event.Event
	// Released is the time of the newest event that was released.
	Released uint64
}

// Push adds an event. What was found late has the time of the newest event that was released.
func (o *Queue) Push(e *event.Event) {
	n := len(o.Events)
	o.Events = slices.Grow(o.Events, 1)[:n+1]
	o.Events[n] = *e // append copies it twice
	o.Events[n].TimeNs = max(e.TimeNs, o.Released)
}

// Edit calls edit for the events of a process that wait, from a time on.
func (o *Queue) Edit(pid int, sinceNs uint64, edit func(*event.Event)) {
	for i := range o.Events {
		if e := &o.Events[i]; e.PID == pid && e.TimeNs >= sinceNs {
			edit(e)
		}
	}
}

// Newest is the time of the last event that arrived; 0 if none waits.
func (o *Queue) Newest() uint64 {
	if len(o.Events) == 0 {
		return 0
	}
	return o.Events[len(o.Events)-1].TimeNs
}

// Release passes the events before a time to handle, oldest first.
func (o *Queue) Release(before uint64, handle func(*event.Event)) {
	for i := 1; i < len(o.Events); i++ {
		if o.Events[i].TimeNs < o.Events[i-1].TimeNs {
			slices.SortStableFunc(o.Events, func(a, b event.Event) int { return cmp.Compare(a.TimeNs, b.TimeNs) })
			break
		}
	}
	n, _ := slices.BinarySearchFunc(o.Events, before, func(e event.Event, t uint64) int {
		return cmp.Compare(e.TimeNs, t)
	})
	for i := range o.Events[:n] {
		o.Released = o.Events[i].TimeNs
		handle(&o.Events[i])
	}
	o.Events = slices.Delete(o.Events, 0, n)
}
